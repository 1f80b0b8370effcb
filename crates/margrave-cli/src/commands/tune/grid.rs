//! `--grid NAME=VALUES`.

use margrave::loss::LossSpec;
use margrave::tune::Grid;

use crate::failure::Failure;
use crate::options::kernel::KernelOptions;
use crate::options::range::range;

/// The grid of `NAME=VALUES` texts; without any, C and γ as in LIBSVM's grid.py.
pub(super) fn parse_grid(given: &[String], kernel: &KernelOptions) -> Result<Grid, Failure> {
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
            // A loss may contain commas itself; loss=huber:delta=1,square is two losses.
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

/// The losses of a list: a comma separates two losses, unless another `key=value` of the same loss follows.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_losses_is_split_between_losses() {
        assert_eq!(
            split_losses("hinge,polynomial:s=2,kappa=0.1,square"),
            ["hinge", "polynomial:s=2,kappa=0.1", "square"]
        );
    }
}
