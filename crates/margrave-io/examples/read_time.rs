//! Reads a file some times over and prints, for each, wall seconds, CPU seconds (Linux), samples, features and values
//! stored: `read_time THREADS REPEATS FILE`. Used by `benches/readers/run`.

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use margrave_io::{ReadOptions, load};

/// User and system seconds of this process so far; 0 where the system does not tell.
fn cpu_seconds() -> f64 {
    // Fields 14 and 15, in ticks of 1/100 s; the name in field 2 may hold blanks but ends with the last `)`.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [threads, repeats, path] = &arguments[..] else {
        return Err("usage: read_time THREADS REPEATS FILE".into());
    };
    let options = ReadOptions { threads: threads.parse()?, ..ReadOptions::default() };
    for _ in 0..repeats.parse::<usize>()? {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let loaded = load(path, &options)?;
        let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let points = &loaded.data.points;
        writeln!(std::io::stdout(), "{wall} {cpu} {} {} {}", points.len(), points.dims(), points.stored())?;
    }
    Ok(())
}
