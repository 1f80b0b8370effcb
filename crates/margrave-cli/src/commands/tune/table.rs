//! The table of a search: one CSV row per cell, from which a later search can resume.

use std::fmt::Write as _;

use margrave::Kernel;
use margrave::tune::{Cell, Params, Tuned};

use crate::failure::Failure;

/// The columns of a table before the folds.
const COLUMNS: &str = "kernel,degree,coef0,gamma,loss,epsilon,nu,C,lambda,score,std,seconds,state,key";

/// All cells as CSV. The key says which data, folds and seed they belong to.
pub(super) fn table(tuned: &Tuned, folds: usize, key: &str) -> String {
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
                format!(
                    "{file}: it belongs to other data, folds, seed or score, or to another scaling ({own}, not {key})"
                ),
                "search with the same data, folds, seed, score and scaling, or without --resume",
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

/// The fields of a line, without quotes.
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

#[cfg(test)]
mod tests {
    use margrave::Status;
    use margrave::loss::LossSpec;

    use super::*;

    #[test]
    fn quoted_fields_keep_their_commas() {
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
        let tuned = Tuned {
            cells: vec![cell.clone(), left.clone()],
            best: Some(0),
            status: Status::Optimal,
            seconds: 1.0,
            scores: vec![],
        };
        let text = table(&tuned, 2, "9x2/2/0");
        let Ok(back) = read_table(&text, "9x2/2/0", "t.csv") else { panic!("reads back: {text}") };
        for (back, cell) in back.iter().zip([&cell, &left]) {
            assert_eq!((&back.params, &back.folds, back.dropped), (&cell.params, &cell.folds, cell.dropped));
        }
        assert!(read_table(&text, "9x2/3/0", "t.csv").is_err());
        assert!(read_table("x\n1,2\n", "k", "t.csv").is_err());
    }
}
