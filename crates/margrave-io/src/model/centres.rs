//! Models of other programs on few centres, as arrays in an NPZ file.
//!
//! f(x) = Σⱼ coefficientsⱼ·k(centresⱼ, x) + bias; see `docs/large.md` for the names of the arrays.

use std::path::Path;

use margrave_core::data::Points;
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::train::GivenMachine;

use crate::array::Arrays;
use crate::error::{Result, malformed};

/// A model on few centres, and what its file says about the problem it solves.
#[derive(Debug, Clone)]
pub struct CentresModel {
    /// Kernel, centres, coefficients and bias.
    pub machine: GivenMachine,
    /// The loss; hinge if the file does not say.
    pub loss: LossSpec,
    /// C, if the file says.
    pub cost: Option<f64>,
}

/// Reads a model from an NPZ file; `None` if the file is of another format.
pub fn load_centres(path: impl AsRef<Path>) -> Result<Option<CentresModel>> {
    let Some(mut arrays) = Arrays::open(path.as_ref())? else { return Ok(None) };
    let file = arrays.file().to_owned();
    let bad = |problem: String, remedy: &str| malformed(&file, problem, remedy.to_owned());
    let (shape, values) = match arrays.numbers("centres")? {
        Some(found) => Some(found),
        None => arrays.numbers("centers")?,
    }
    .ok_or_else(|| {
        let names = arrays.names();
        bad(
            format!("a model needs an array \"centres\", and the arrays are {names}"),
            "save centres, coefficients, gamma and, if there is one, bias with numpy.savez",
        )
    })?;
    let [m, d] = shape[..] else {
        return Err(bad(format!("centres has shape {shape:?}"), "save one row for each centre"));
    };
    let (shape, coefficients) = arrays
        .numbers("coefficients")?
        .ok_or_else(|| bad("there is no array \"coefficients\"".into(), "save one for each centre"))?;
    if coefficients.len() != m || m == 0 {
        return Err(bad(
            format!("there are {m} centres, and coefficients has shape {shape:?}"),
            "save one for each centre",
        ));
    }
    let mut number = |name: &str| -> Result<Option<f64>> {
        match arrays.numbers(name)? {
            None => Ok(None),
            Some((_, values)) if values.len() == 1 && values[0].is_finite() => Ok(Some(values[0])),
            Some((shape, _)) => Err(bad(format!("{name} has shape {shape:?}, or is not finite"), "save one number")),
        }
    };
    let (gamma, coef0, degree) = (number("gamma")?, number("coef0")?.unwrap_or(0.0), number("degree")?.unwrap_or(3.0));
    let (bias, cost) = (number("bias")?, number("C")?);
    if cost.is_some_and(|c| !(c > 0.0)) {
        return Err(bad("C must be positive".into(), "save the C of ½‖f‖² + C·Σℓ"));
    }
    if !coefficients.iter().chain(&values).all(|v| v.is_finite()) {
        return Err(bad("a centre or a coefficient is not finite".into(), "check what was saved"));
    }
    let name = arrays.text("kernel")?.unwrap_or_else(|| "rbf".to_owned());
    let gamma = || match gamma {
        Some(gamma) if gamma > 0.0 => Ok(gamma),
        _ => Err(bad("there is no gamma > 0".into(), "save gamma of exp(−gamma‖x − x′‖²), or that of the kernel")),
    };
    let kernel = match name.as_str() {
        "rbf" => Kernel::Rbf { gamma: gamma()? },
        "laplacian" => Kernel::Laplacian { gamma: gamma()? },
        "matern32" => Kernel::Matern32 { gamma: gamma()? },
        "matern52" => Kernel::Matern52 { gamma: gamma()? },
        "poly" if (1.0..=100.0).contains(&degree) && degree.fract() == 0.0 => {
            Kernel::Poly { gamma: gamma()?, coef0, degree: degree as u32 }
        }
        other => {
            let problem = format!("the kernel {other:?}, or its degree, is not known here");
            return Err(bad(problem, "there are rbf, laplacian, matern32, matern52 and poly with a whole degree"));
        }
    };
    let loss = match arrays.text("loss")? {
        None => LossSpec::Hinge,
        Some(text) => text.parse().map_err(|e: margrave_core::Error| bad(e.to_string(), "see 'margrave losses'"))?,
    };
    let centres = Points::dense_f64(m, d, values).map_err(|e| bad(e.to_string(), "check what was saved"))?;
    Ok(Some(CentresModel { machine: GivenMachine { kernel, centres, coefficients, bias }, loss, cost }))
}
