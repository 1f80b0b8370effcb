//! LIBSVM's text models: machines of one output, for verifying and predicting.
//!
//! A header of `key value…` lines ends with `SV`; then one line a support vector: its coefficient (already times y) and
//! `index:value` pairs. Features were written with eight digits, so that a centre equals its training row only to about
//! 1e-8 of its size. The file stores neither C nor row numbers: whoever verifies brings both, and the rows are found by
//! [`LibsvmModel::find_rows`].

use std::collections::HashMap;

use margrave_core::Error;
use margrave_core::data::{Csr, Label, Points};
use margrave_core::kernel::Kernel;

use super::container::Broken;

/// What a LIBSVM model predicts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibsvmKind {
    /// `c_svc`
    CSvc,
    /// `nu_svc`
    NuSvc,
    /// `one_class`
    OneClass,
    /// `epsilon_svr`
    EpsilonSvr,
    /// `nu_svr`
    NuSvr,
}

/// A LIBSVM model of one output.
#[derive(Debug, Clone)]
pub struct LibsvmModel {
    /// The machine.
    pub kind: LibsvmKind,
    /// The kernel.
    pub kernel: Kernel,
    /// The labels in the file's order: a score > 0 means the first. Empty unless classifying.
    pub labels: Vec<Label>,
    /// The decision is Σ coefficient·k(x, centre) − rho.
    pub rho: f64,
    /// One a centre.
    pub coefficients: Vec<f64>,
    /// The centres, as written.
    pub centres: Points,
}

impl LibsvmModel {
    /// The row of `points` that each centre is, to the eight digits it was written with. Of equal rows one that is not yet
    /// taken and for which `fits(centre, row)` holds. Fails if a centre is not among the rows.
    pub fn find_rows(&self, points: &Points, fits: impl Fn(usize, usize) -> bool) -> margrave_core::Result<Vec<u32>> {
        let mut places: HashMap<String, Vec<u32>> = HashMap::new();
        for row in (0..points.len()).rev() {
            places.entry(digits(points, row)).or_default().push(row as u32);
        }
        let mut rows = Vec::with_capacity(self.coefficients.len());
        for centre in 0..self.centres.len() {
            let free = places.get_mut(&digits(&self.centres, centre));
            let at = free.as_ref().and_then(|list| list.iter().rposition(|&row| fits(centre, row as usize)));
            match (free, at) {
                (Some(list), Some(at)) => rows.push(list.remove(at)),
                _ => {
                    return Err(Error::data(format!(
                        "support vector {} of the model is not among the rows of the data: give the training data",
                        centre + 1
                    )));
                }
            }
        }
        Ok(rows)
    }
}

/// A row as LIBSVM writes it: features that are not zero, eight digits each.
fn digits(points: &Points, row: usize) -> String {
    let mut key = String::new();
    points.visit(row, |column, value| {
        if value != 0.0 {
            key += &format!("{column}:{value:.7e} ");
        }
    });
    key
}

/// Whether these bytes begin like a LIBSVM model.
pub(super) fn looks_like(bytes: &[u8]) -> bool {
    bytes.starts_with(b"svm_type ")
}

fn wrong(line: usize, what: impl std::fmt::Display) -> Broken {
    Broken::new(format!("line {line} of the LIBSVM model: {what}"))
}

fn number(line: usize, text: &str) -> Result<f64, Broken> {
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() => Ok(v),
        _ => Err(wrong(line, format_args!("{text:?} is not a finite number"))),
    }
}

/// Reads a LIBSVM model from memory.
pub(super) fn parse(bytes: &[u8]) -> Result<LibsvmModel, Broken> {
    let text = std::str::from_utf8(bytes).map_err(|_| Broken::new("the LIBSVM model is not text"))?;
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim_end()));
    let (mut kind, mut kernel_name, mut labels, mut rho) = (None, None, Vec::new(), None);
    let (mut gamma, mut coef0, mut degree, mut total) = (1.0, 0.0, 3, None);
    loop {
        let Some((at, line)) = lines.next() else {
            return Err(Broken::new("the LIBSVM model ends before its support vectors"));
        };
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or("");
        let values: Vec<&str> = words.collect();
        let first = || values.first().copied().ok_or_else(|| wrong(at, format_args!("{key} has no value")));
        match key {
            "svm_type" => {
                kind = Some(match first()? {
                    "c_svc" => LibsvmKind::CSvc,
                    "nu_svc" => LibsvmKind::NuSvc,
                    "one_class" => LibsvmKind::OneClass,
                    "epsilon_svr" => LibsvmKind::EpsilonSvr,
                    "nu_svr" => LibsvmKind::NuSvr,
                    other => return Err(wrong(at, format_args!("unknown svm_type {other:?}"))),
                });
            }
            "kernel_type" => kernel_name = Some(first()?),
            "gamma" => gamma = number(at, first()?)?,
            "coef0" => coef0 = number(at, first()?)?,
            "degree" => {
                degree = first()?.parse().map_err(|_| wrong(at, "the degree is not a whole number ≥ 0"))?;
            }
            "nr_class" => {
                let classes = number(at, first()?)?;
                if classes != 2.0 {
                    return Err(wrong(at, format_args!("{classes} classes: only models of two can be read yet")));
                }
            }
            "total_sv" => total = Some(number(at, first()?)?),
            "rho" if values.len() == 1 => rho = Some(number(at, first()?)?),
            "rho" => return Err(wrong(at, format_args!("{} values of rho, not one", values.len()))),
            "label" => {
                for value in &values {
                    labels.push(Label::Number(number(at, value)?));
                }
            }
            "probA" | "probB" | "prob_density_marks" | "nr_sv" => {}
            "SV" => break,
            other => return Err(wrong(at, format_args!("unknown entry {other:?}"))),
        }
    }
    let kind = kind.ok_or_else(|| Broken::new("the LIBSVM model has no svm_type"))?;
    let kernel = match kernel_name {
        Some("linear") => Kernel::Linear,
        Some("polynomial") => Kernel::Poly { gamma, coef0, degree },
        Some("rbf") => Kernel::Rbf { gamma },
        Some("sigmoid") => Kernel::Sigmoid { gamma, coef0 },
        Some("precomputed") => return Err(Broken::new("LIBSVM models with a precomputed kernel cannot be read yet")),
        Some(other) => return Err(Broken::new(format!("the LIBSVM model has the unknown kernel_type {other:?}"))),
        None => return Err(Broken::new("the LIBSVM model has no kernel_type")),
    };
    kernel.check().map_err(|e| Broken::new(e.to_string()))?;
    if matches!(kind, LibsvmKind::CSvc | LibsvmKind::NuSvc) && labels.len() != 2 {
        return Err(Broken::new(format!("a LIBSVM classifier with {} labels, not two", labels.len())));
    }
    let rho = rho.ok_or_else(|| Broken::new("the LIBSVM model has no rho"))?;
    let (mut coefficients, mut starts, mut columns, mut values) = (Vec::new(), vec![0], Vec::<u32>::new(), Vec::new());
    for (at, line) in lines {
        let mut words = line.split_whitespace();
        let Some(coefficient) = words.next() else { continue };
        coefficients.push(number(at, coefficient)?);
        let begin = columns.len();
        for word in words {
            let pair = word.split_once(':').ok_or_else(|| wrong(at, format_args!("{word:?} is not index:value")))?;
            let index: u32 = pair
                .0
                .parse()
                .ok()
                .filter(|i| *i >= 1)
                .ok_or_else(|| wrong(at, format_args!("the index {:?} is not a whole number ≥ 1", pair.0)))?;
            if columns.len() > begin && columns[columns.len() - 1] >= index - 1 {
                return Err(wrong(at, "the indices do not ascend"));
            }
            columns.push(index - 1);
            values.push(number(at, pair.1)?);
        }
        starts.push(columns.len());
    }
    if total.is_some_and(|t| t != coefficients.len() as f64) {
        return Err(Broken::new(format!(
            "the LIBSVM model promises {} support vectors and has {}: it is cut short",
            total.unwrap_or(0.0),
            coefficients.len()
        )));
    }
    let d = columns.iter().max().map_or(0, |c| *c as usize + 1);
    let centres = Csr::new(d, starts, columns, values).map_err(|e| Broken::new(e.to_string()))?;
    Ok(LibsvmModel { kind, kernel, labels, rho, coefficients, centres: centres.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class 2\ntotal_sv 2\nrho 0.25\nlabel 1 -1\n\
                         nr_sv 1 1\nSV\n0.5 1:0.33333333 3:1 \n-0.5 2:-2e-05 \n";

    #[test]
    fn a_model_by_hand() {
        let model = parse(MODEL.as_bytes()).unwrap();
        assert_eq!((model.kind, model.kernel, model.rho), (LibsvmKind::CSvc, Kernel::rbf(0.5), 0.25));
        assert_eq!(model.labels, [Label::Number(1.0), Label::Number(-1.0)]);
        assert_eq!((model.coefficients.as_slice(), model.centres.dims()), (&[0.5, -0.5][..], 3));
        let rows = Points::dense_f64(3, 3, vec![0.0, -2e-5, 0.0, 1.0 / 3.0, 0.0, 1.0, 1.0 / 3.0, 0.0, 1.0]).unwrap();
        assert_eq!(model.find_rows(&rows, |_, _| true).unwrap(), [1, 0]);
        assert_eq!(model.find_rows(&rows, |_, row| row != 1).unwrap(), [2, 0]);
        let other = Points::dense_f64(1, 3, vec![0.0, -2e-5, 0.0]).unwrap();
        assert!(model.find_rows(&other, |_, _| true).unwrap_err().to_string().contains("support vector 1"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let say = |from: &str, to: &str| {
            assert!(MODEL.contains(from));
            parse(MODEL.replace(from, to).as_bytes()).unwrap_err().to_string()
        };
        assert!(say("c_svc", "d_svc").contains("line 1"));
        assert!(say("total_sv 2", "total_sv 3").contains("cut short"));
        assert!(say("nr_class 2", "nr_class 3").contains("3 classes"));
        assert!(say("3:1", "1:1").contains("ascend"));
        assert!(say("3:1", "0:1").contains("≥ 1"));
        assert!(say("3:1", "3:nan").contains("finite"));
        assert!(say("3:1", "3").contains("index:value"));
        assert!(say("rho 0.25", "rho 1 2 3").contains("rho"));
        assert!(say("gamma 0.5", "gamma -1").contains("gamma"));
        assert!(say("label 1 -1\n", "").contains("labels"));
        assert!(say("SV\n0.5", "XX\n0.5").contains("unknown entry"));
        for end in 0..MODEL.len() - 1 {
            // A cut may leave a shorter number, never a panic.
            let _ = parse(&MODEL.as_bytes()[..end]);
        }
    }
}
