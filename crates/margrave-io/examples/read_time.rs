//! Reads a file some times over and prints, for each, seconds, samples, features and values stored:
//! `read_time THREADS REPEATS FILE`. Used by `benches/readers/run`.

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use margrave_io::{ReadOptions, load};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [threads, repeats, path] = &arguments[..] else {
        return Err("usage: read_time THREADS REPEATS FILE".into());
    };
    let options = ReadOptions { threads: threads.parse()?, ..ReadOptions::default() };
    for _ in 0..repeats.parse::<usize>()? {
        let start = Instant::now();
        let loaded = load(path, &options)?;
        let wall = start.elapsed().as_secs_f64();
        let points = &loaded.data.points;
        writeln!(std::io::stdout(), "{wall} {} {} {}", points.len(), points.dims(), points.stored())?;
    }
    Ok(())
}
