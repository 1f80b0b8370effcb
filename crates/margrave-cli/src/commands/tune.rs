//! `margrave tune`: the best of a grid by cross validation, trained on all data.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use margrave::loss::LossSpec;
use margrave::problem::Task;
use margrave::tune::{Cell, Grid, Params, Tuned, Tuner};
use margrave::{Kernel, Status, Targets};
use serde_json::{Map, Value, json};

use super::train::{Training, train_object};
use crate::cli::Common;
use crate::failure::{Exit, Failure, Outcome};
use crate::format;
use crate::options::data::DataOptions;
use crate::options::kernel::KernelOptions;
use crate::options::range::range;
use crate::options::train::{MachineOptions, SolverOptions};
use crate::outputs::{self, Input};
use crate::progress::Progress;
use crate::signal;
use crate::terminal::{Style, Terminal};
use margrave_plot::HeatMap;

const EXAMPLES: &str = "\
Examples:
  margrave tune heart.svm                                           C and γ over the usual grid, five folds
  margrave tune heart.svm --grid C=2^-5..2^15*4 --grid gamma=2^-15..2^3*4 -o heart.model --plot grid.svg
  margrave tune houses.csv --task regress --grid C=1,10,100 --grid epsilon=0.01,0.1 --scale standard
  margrave tune heart.svm --grid loss=hinge,squared-hinge,square --grid kernel=rbf,linear --table cells.csv
  margrave tune big.svm --max-seconds 600 --table cells.csv         exit code 3 if that was too short
  margrave tune big.svm --resume cells.csv --table cells.csv        go on from there

Grid names: C, lambda, gamma, epsilon, nu, kernel, loss. Values: from..to*factor, from..to+step, or a list a,b,c.
The score is the share of right labels, or minus the mean squared error.";

/// Arguments of `tune`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tune {
    #[command(flatten)]
    data: DataOptions,
    /// Values to try, as NAME=VALUES; several times for several names [default: C and γ as LIBSVM's grid.py]
    #[arg(long, value_name = "NAME=VALUES", help_heading = "Search")]
    grid: Vec<String>,
    /// Folds of the cross validation, classes spread evenly
    #[arg(long, value_name = "K", default_value_t = 5, allow_negative_numbers = true, help_heading = "Search")]
    folds: usize,
    /// File with one name a row: rows of one name stay in one fold
    #[arg(long, value_name = "FILE", help_heading = "Search")]
    groups: Option<PathBuf>,
    /// File with the fold of each row, one number a line counted from 0, in place of dealing them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["folds", "groups"], help_heading = "Search")]
    fold_file: Option<PathBuf>,
    /// Leave a combination out once it is this many deviations behind the best; 0: try all on all folds
    #[arg(long, value_name = "Z", default_value_t = 4.0, allow_negative_numbers = true, help_heading = "Search")]
    race: f64,
    /// Take finished cells from this table of an earlier search on the same data
    #[arg(long, value_name = "FILE.csv", help_heading = "Search")]
    resume: Option<PathBuf>,
    /// Train the best on all data and write its model
    #[arg(long, short, value_name = "MODEL", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Write all cells to this file
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    table: Option<PathBuf>,
    /// Draw the scores over C and γ
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten)]
    kernel: KernelOptions,
    #[command(flatten)]
    solver: SolverOptions,
}

impl Tune {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let begun = Instant::now();
        self.machine.check()?;
        if let Some(file) = &self.plot
            && file.extension().is_none_or(|e| !e.eq_ignore_ascii_case("svg"))
        {
            return Err(Failure::new(format!("--plot {}: the name must end in .svg", file.display())));
        }
        self.check_files()?;
        let grid = parse_grid(&self.grid, &self.kernel)?;
        if self.plot.is_some() && (grid.costs.len().max(grid.lambdas.len()) < 2 || grid.gammas.len() < 2) {
            return Err(no_map());
        }
        let threads = common.threads();
        let loaded = self.data.load_within(self.solver.memory(), threads.count())?;
        let flag = signal::listen()?;
        let training = Training {
            data: &self.data,
            machine: &self.machine,
            kernel: &self.kernel,
            solver: &self.solver,
            seed: common.seed,
        };
        let svm = training.svm(&loaded, threads, flag)?;
        if let Targets::Several { outputs, .. } = &loaded.data.targets {
            return Err(Failure::with_hint(
                format!("{} has {outputs} targets, and a search scores one", self.data.name()),
                "choose one with --target; 'margrave path' finds the λ of several by leave-one-out",
            ));
        }
        let mut tuner = Tuner::new(svm, grid);
        tuner.folds = self.folds;
        tuner.groups = self.read_groups(loaded.data.len())?;
        tuner.fold_of = self.read_folds()?;
        tuner.race = (self.race != 0.0).then_some(self.race);
        let dealt = tuner.fold_of.as_deref().map(fingerprint);
        let folds = match &tuner.fold_of {
            Some(fold) => fold.iter().max().map_or(0, |f| *f as usize + 1),
            None => self.folds,
        };
        tuner.folds = folds;
        let key = format!(
            "{}x{}/{folds}/{}",
            loaded.data.len(),
            loaded.data.points.dims(),
            dealt.unwrap_or_else(|| common.seed.to_string())
        );
        if let Some(path) = &self.resume {
            let text = std::fs::read_to_string(path)
                .map_err(|e| Failure::new(format!("{}: could not be read: {e}", path.display())))?;
            tuner.known = read_table(&text, &key, &path.display().to_string())?;
        }
        let mut progress = Progress::new(terminal);
        let tuned = tuner.search(&loaded.data, &mut progress)?;
        drop(progress);
        // A table that cannot be written must not cost the model as well.
        let mut lost = None;
        if let Some(path) = &self.table {
            let text = table(&tuned, folds, &key);
            lost = margrave::io::write_atomic(path, |out| out.write_all(text.as_bytes())).err().map(Failure::from);
        }
        let finished = tuned.cells.iter().filter(|cell| cell.is_finished()).count();
        let dropped = tuned.cells.iter().filter(|cell| cell.dropped).count();
        let Some(best) = tuned.best.map(|at| &tuned.cells[at]) else {
            return Err(Failure::Stopped {
                why: if tuned.status == Status::Interrupted {
                    margrave::Interrupt::Cancelled
                } else {
                    margrave::Interrupt::Deadline
                },
                message: "stopped before any combination was finished: allow more time with --max-seconds".into(),
            });
        };
        if let Some(path) = &self.plot {
            let written = heat_map(&tuned).ok_or_else(no_map).and_then(|map| {
                let text = map.to_svg();
                Ok(margrave::io::write_atomic(path, |out| out.write_all(text.as_bytes()))?)
            });
            lost = lost.or(written.err());
        }
        let mut object = Map::new();
        let cells: Vec<Value> = tuned.cells.iter().map(cell_object).collect();
        object.insert("cells".into(), json!(cells));
        object.insert("best".into(), cell_object(best));
        object
            .insert("scoring".into(), json!(if loaded_task(&tuner) == Task::Regress { "neg_mse" } else { "accuracy" }));
        object.insert("status".into(), json!(tuned.status));
        object.insert("folds".into(), json!(folds));
        object.insert("dropped".into(), json!(dropped));
        let style = if tuned.status == Status::Optimal { Style::Good } else { Style::Warn };
        let verdict = match tuned.status {
            Status::Optimal => "done".to_owned(),
            _ => format!("stopped early: {finished} of {} combinations finished", tuned.cells.len()),
        };
        let tried = match dropped {
            0 => format!("{finished}, {folds} folds each"),
            _ => format!("{}: {finished} on {folds} folds, {dropped} left out after fewer", tuned.cells.len()),
        };
        let mut rows = vec![
            ("combinations", tried),
            ("best", describe(&best.params)),
            ("score", shown(best, loaded_task(&tuner))),
            ("time", format::duration(tuned.seconds)),
        ];
        let mut trained = Status::Optimal;
        if let Some(path) = &self.output {
            let fit = margrave::Fit::from(tuner.refit(&best.params, &loaded.data, &mut margrave::observe::Silent)?);
            fit.save(path)?;
            trained = fit.status();
            rows.push(("gap", super::train::gap_words(fit.certificate())));
            let how = if trained == Status::Optimal { String::new() } else { format!(", {trained}") };
            rows.push(("model", format!("{}, trained on all rows{how}", path.display())));
            object.insert("model".into(), json!(path.display().to_string()));
            object.insert("fit".into(), train_object(&fit, &loaded, &path.display().to_string()));
        }
        if let Some(failure) = lost {
            return Err(failure);
        }
        object.insert("seconds".into(), json!(begun.elapsed().as_secs_f64()));
        terminal.say(&format!("{}\n{}", terminal.paint(style, &verdict), format::table(terminal, &rows)))?;
        terminal.object(&object)?;
        Ok(match tuned.status {
            Status::Optimal => Exit::from(trained),
            stopped => Exit::from(stopped),
        })
    }

    fn check_files(&self) -> Result<(), Failure> {
        let [data, targets] = self.data.inputs();
        let inputs = [
            data,
            targets,
            Input::new("--groups", self.groups.as_deref()),
            Input::new("--fold-file", self.fold_file.as_deref()),
            Input::new("--resume", self.resume.as_deref()).in_place("--table"),
        ];
        let outputs =
            [("-o", self.output.as_deref()), ("--table", self.table.as_deref()), ("--plot", self.plot.as_deref())];
        outputs::check(&inputs, &outputs)
    }

    fn read_folds(&self) -> Result<Option<Vec<u32>>, Failure> {
        let Some(path) = &self.fold_file else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::new(format!("--fold-file {}: could not be read: {e}", path.display())))?;
        let number = |(at, line): (usize, &str)| {
            line.trim().parse().map_err(|_| {
                Failure::with_hint(
                    format!("--fold-file {}: line {} is not the number of a fold", path.display(), at + 1),
                    "give one of 0, 1, 2, … for each row",
                )
            })
        };
        text.lines().enumerate().map(number).collect::<Result<Vec<u32>, Failure>>().map(Some)
    }

    fn read_groups(&self, n: usize) -> Result<Option<Vec<u32>>, Failure> {
        let Some(path) = &self.groups else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::new(format!("--groups {}: could not be read: {e}", path.display())))?;
        let names: Vec<&str> = text.lines().map(str::trim).collect();
        if names.len() != n {
            return Err(Failure::new(format!(
                "--groups {}: {} lines for {n} rows: give one name a row",
                path.display(),
                names.len()
            )));
        }
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        Ok(Some(names.iter().map(|name| sorted.binary_search(name).unwrap_or(0) as u32).collect()))
    }
}

/// The grid of `NAME=VALUES` texts; without any, C and γ as LIBSVM's grid.py tries them.
fn parse_grid(given: &[String], kernel: &KernelOptions) -> Result<Grid, Failure> {
    let mut grid = Grid::default();
    for text in given {
        let wrong = |what: String| {
            Failure::with_hint(
                format!("--grid {text}: {what}"),
                "as in --grid C=2^-5..2^15*4, --grid gamma=0.01,0.1,1 or --grid loss=hinge,square",
            )
        };
        let (name, values) = text.split_once('=').ok_or_else(|| wrong("expected NAME=VALUES".into()))?;
        let numbers = |most: f64| -> Result<Vec<f64>, Failure> {
            let list = range(values).map_err(&wrong)?;
            match list.iter().find(|v| !(**v > 0.0 && **v <= most && v.is_finite())) {
                None => Ok(list),
                Some(v) => {
                    Err(wrong(format!("{v} is not allowed: numbers > 0{}", if most == 1.0 { " and ≤ 1" } else { "" })))
                }
            }
        };
        match name {
            "C" | "c" | "cost" => grid.costs = numbers(f64::MAX)?,
            "lambda" => grid.lambdas = numbers(f64::MAX)?,
            "gamma" => grid.gammas = numbers(f64::MAX)?,
            "nu" => grid.nus = numbers(1.0)?,
            "epsilon" => {
                let list = range(values).map_err(&wrong)?;
                if list.iter().any(|v| !(*v >= 0.0)) {
                    return Err(wrong("numbers ≥ 0 are allowed".into()));
                }
                grid.epsilons = list;
            }
            "kernel" => {
                for part in values.split(',') {
                    grid.kernels.push(kernel.named(part).map_err(&wrong)?);
                }
            }
            // A loss may hold commas of its own: loss=huber:delta=1,square is two.
            "loss" => {
                for part in split_losses(values) {
                    grid.losses.push(part.parse::<LossSpec>().map_err(|e| wrong(e.to_string()))?);
                }
            }
            other => {
                return Err(wrong(format!("unknown name {other:?}: C, lambda, gamma, epsilon, nu, kernel or loss")));
            }
        }
    }
    if given.is_empty() {
        grid.costs = (-5..=15).step_by(2).map(|e| 2f64.powi(e)).collect();
        if kernel.has_gamma() {
            grid.gammas = (-15..=3).step_by(2).map(|e| 2f64.powi(e)).collect();
        }
    }
    Ok(grid)
}

/// Whether a text is a part of a grid.
pub(crate) fn accepts(text: &str) -> [bool; 1] {
    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        kernel: KernelOptions,
    }
    let alone = <Alone as clap::Parser>::try_parse_from(["grid"]);
    [alone.is_ok_and(|alone| parse_grid(&[text.to_owned()], &alone.kernel).is_ok())]
}

fn no_map() -> Failure {
    Failure::with_hint("--plot draws C against γ", "give several values of both with --grid")
}

/// Losses of a list: a comma ends one unless what follows is another `key=value` of it.
fn split_losses(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for part in text.split(',') {
        match out.last_mut() {
            Some(last) if part.contains('=') && !part.contains(':') && last.contains(':') => {
                last.push(',');
                last.push_str(part);
            }
            _ => out.push(part.to_owned()),
        }
    }
    out
}

/// A name for a given deal of the rows.
fn fingerprint(fold: &[u32]) -> String {
    // FNV-1a.
    let hash = fold.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, f| (h ^ u64::from(*f)).wrapping_mul(0x100_0000_01b3));
    format!("given-{hash:016x}")
}

fn loaded_task(tuner: &Tuner) -> Task {
    tuner.options.task
}

/// A combination in words.
pub(crate) fn describe(params: &Params) -> String {
    let number = |v: f64| format::number(v, 4);
    let mut parts = Vec::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(v) = value {
            parts.push(format!("{name} = {}", number(v)));
        }
    };
    put("C", params.c);
    put("λ", params.lambda);
    put("γ", params.kernel.gamma());
    put("ε", params.epsilon);
    put("ν", params.nu);
    if let Some(loss) = &params.loss {
        parts.push(format!("{loss} loss"));
    }
    parts.push(format!("{} kernel", params.kernel.name()));
    parts.join(", ")
}

pub(crate) fn shown(cell: &Cell, task: Task) -> String {
    let (mean, deviation) = (cell.seen().unwrap_or(f64::NAN), cell.deviation().unwrap_or(0.0));
    match task {
        Task::Regress => {
            format!("mean squared error {} ± {}", format::number(-mean, 5), format::number(deviation, 2))
        }
        _ => format!("{} % right ± {}", format::number(100.0 * mean, 4), format::number(100.0 * deviation, 2)),
    }
}

fn params_object(params: &Params) -> Value {
    let mut object = Map::new();
    object.insert("kernel".into(), json!(params.kernel.name()));
    let numbers = [
        ("gamma", params.kernel.gamma()),
        ("C", params.c),
        ("lambda", params.lambda),
        ("epsilon", params.epsilon),
        ("nu", params.nu),
    ];
    for (name, value) in numbers {
        if let Some(v) = value {
            object.insert(name.into(), json!(v));
        }
    }
    if let Some(loss) = &params.loss {
        object.insert("loss".into(), json!(loss.to_string()));
    }
    Value::Object(object)
}

fn cell_object(cell: &Cell) -> Value {
    json!({
        "params": params_object(&cell.params),
        "score": cell.score(),
        "std": cell.deviation(),
        "seconds": cell.seconds,
        "folds": cell.folds,
        "dropped": cell.dropped,
    })
}

/// The columns of a table before the folds.
const COLUMNS: &str = "kernel,degree,coef0,gamma,loss,epsilon,nu,C,lambda,score,std,seconds,state,key";

/// All cells as CSV. The key says which data, folds and seed they belong to.
fn table(tuned: &Tuned, folds: usize, key: &str) -> String {
    let mut text = String::from(COLUMNS);
    (0..folds).for_each(|fold| {
        let _ = write!(text, ",fold {fold}");
    });
    text.push('\n');
    for cell in tuned.cells.iter().filter(|cell| !cell.folds.is_empty()) {
        let p = &cell.params;
        let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
        let (degree, coef0) = match p.kernel {
            Kernel::Poly { degree, coef0, .. } => (degree.to_string(), coef0.to_string()),
            Kernel::Sigmoid { coef0, .. } => (String::new(), coef0.to_string()),
            _ => (String::new(), String::new()),
        };
        let loss = p.loss.map_or(String::new(), |loss| format!("\"{loss}\""));
        let state = match (cell.dropped, cell.folds.len()) {
            (true, seen) => format!("left out after {seen}"),
            (false, seen) if seen < cell.of => format!("stopped after {seen}"),
            _ => "done".to_owned(),
        };
        let _ = write!(
            text,
            "{},{degree},{coef0},{},{loss},{},{},{},{},{},{},{},{state},{key}",
            p.kernel.name(),
            number(p.kernel.gamma()),
            number(p.epsilon),
            number(p.nu),
            number(p.c),
            number(p.lambda),
            number(cell.seen()),
            number(cell.deviation()),
            cell.seconds
        );
        for fold in 0..folds {
            let _ = write!(text, ",{}", number(cell.folds.get(fold).copied()));
        }
        text.push('\n');
    }
    text
}

/// The cells of a table that was written for the same data, folds and seed.
pub(crate) fn read_table(text: &str, key: &str, file: &str) -> Result<Vec<Cell>, Failure> {
    let wrong = |line: usize| {
        Failure::with_hint(
            format!("{file}: line {line} is not a row of a table of 'margrave tune'"),
            "give one written with --table, unchanged",
        )
    };
    if !text.lines().next().is_some_and(|head| head.starts_with(COLUMNS)) {
        return Err(wrong(1));
    }
    let mut cells = Vec::new();
    for (at, line) in text.lines().enumerate().skip(1) {
        let fields = split_row(line);
        let [kernel, degree, coef0, gamma, loss, epsilon, nu, c, lambda, _, _, seconds, state, own, folds @ ..] =
            fields.as_slice()
        else {
            return Err(wrong(at + 1));
        };
        if own != key {
            return Err(Failure::with_hint(
                format!("{file}: it belongs to other data, folds or seed ({own} instead of {key})"),
                "search with the same, or without --resume",
            ));
        }
        let number = |text: &String| -> Result<Option<f64>, Failure> {
            if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| wrong(at + 1)) }
        };
        let gamma = number(gamma)?.unwrap_or(1.0);
        let coef0 = number(coef0)?.unwrap_or(0.0);
        let kernel = match kernel.as_str() {
            "linear" => Kernel::Linear,
            "precomputed" => Kernel::Precomputed,
            "poly" => Kernel::Poly { gamma, coef0, degree: degree.parse().map_err(|_| wrong(at + 1))? },
            "rbf" => Kernel::Rbf { gamma },
            "sigmoid" => Kernel::Sigmoid { gamma, coef0 },
            "laplacian" => Kernel::Laplacian { gamma },
            "matern32" => Kernel::Matern32 { gamma },
            "matern52" => Kernel::Matern52 { gamma },
            "chi2" => Kernel::Chi2 { gamma },
            _ => return Err(wrong(at + 1)),
        };
        let loss = if loss.is_empty() { None } else { Some(loss.parse().map_err(|_| wrong(at + 1))?) };
        let params =
            Params { kernel, loss, c: number(c)?, lambda: number(lambda)?, epsilon: number(epsilon)?, nu: number(nu)? };
        let of = folds.len();
        let folds: Option<Vec<f64>> = folds.iter().take_while(|f| !f.is_empty()).map(|f| f.parse().ok()).collect();
        let folds = folds.ok_or_else(|| wrong(at + 1))?;
        let dropped = state.starts_with("left out");
        cells.push(Cell { params, folds, of, dropped, seconds: number(seconds)?.unwrap_or(0.0) });
    }
    Ok(cells)
}

/// The fields of a line, quotes taken off.
fn split_row(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("there is always one").push(c),
        }
    }
    fields
}

/// Scores over C and γ of the best cell's kernel and loss; `None` unless there are several of both.
pub(crate) fn heat_map(tuned: &Tuned) -> Option<HeatMap> {
    let best = &tuned.cells[tuned.best?].params;
    let same = |p: &Params| {
        p.kernel.name() == best.kernel.name() && p.loss == best.loss && p.epsilon == best.epsilon && p.nu == best.nu
    };
    let cells: Vec<&Cell> = tuned.cells.iter().filter(|cell| same(&cell.params)).collect();
    let axis = |of: fn(&Params) -> Option<f64>| {
        let mut values: Vec<f64> = cells.iter().filter_map(|cell| of(&cell.params)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        (values.len() > 1).then_some(values)
    };
    let cost: fn(&Params) -> Option<f64> = if best.c.is_some() { |p| p.c } else { |p| p.lambda };
    let (costs, gammas) = (axis(cost)?, axis(|p| p.kernel.gamma())?);
    let names = |values: &[f64]| values.iter().map(|v| format::number(*v, 3)).collect::<Vec<_>>();
    let mut values = vec![vec![None; costs.len()]; gammas.len()];
    let mut mark = None;
    for cell in &cells {
        let (Some(c), Some(gamma)) = (cost(&cell.params), cell.params.kernel.gamma()) else { continue };
        let place = |list: &[f64], v: f64| list.iter().position(|x| *x == v);
        if let (Some(column), Some(row)) = (place(&costs, c), place(&gammas, gamma)) {
            values[row][column] = cell.seen();
            if cell.params == *best {
                mark = Some((row, column));
            }
        }
    }
    let accuracy = cells.iter().filter_map(|cell| cell.seen()).all(|score| score >= 0.0);
    Some(HeatMap {
        title: format!(
            "{} over C and γ, {}",
            if accuracy { "Share of right labels, %," } else { "Minus the mean squared error" },
            best.kernel.name()
        ),
        x: (if best.c.is_some() { "C" } else { "λ" }.into(), names(&costs)),
        y: ("γ".into(), names(&gammas)),
        values,
        mark,
        format: if accuracy { |v| format::number(100.0 * v, 3) } else { |v| format::number(v, 3) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_losses_and_rows() {
        assert_eq!(
            split_losses("hinge,polynomial:s=2,kappa=0.1,square"),
            ["hinge", "polynomial:s=2,kappa=0.1", "square"]
        );
        assert_eq!(split_row("a,\"b,c\",,d"), ["a", "b,c", "", "d"]);
    }

    #[test]
    fn a_table_reads_back() {
        let params = Params {
            kernel: Kernel::Poly { gamma: 0.1, coef0: -0.5, degree: 4 },
            loss: Some(LossSpec::Huber { delta: 0.25 }),
            c: Some(1.0 / 3.0),
            lambda: None,
            epsilon: None,
            nu: None,
        };
        let cell = Cell { params, folds: vec![-0.1, -0.2], of: 2, dropped: false, seconds: 0.5 };
        let left = Cell { folds: vec![-0.7], dropped: true, ..cell.clone() };
        let tuned =
            Tuned { cells: vec![cell.clone(), left.clone()], best: Some(0), status: Status::Optimal, seconds: 1.0 };
        let text = table(&tuned, 2, "9x2/2/0");
        let Ok(back) = read_table(&text, "9x2/2/0", "t.csv") else { panic!("reads back: {text}") };
        for (back, cell) in back.iter().zip([&cell, &left]) {
            assert_eq!((&back.params, &back.folds, back.dropped), (&cell.params, &cell.folds, cell.dropped));
        }
        assert!(read_table(&text, "9x2/3/0", "t.csv").is_err());
        assert!(read_table("x\n1,2\n", "k", "t.csv").is_err());
    }
}
