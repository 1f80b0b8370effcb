//! LIBSVM model files, read and written exactly as by LIBSVM.
//!
//! A header of `key value…` lines ends with `SV`; then one line per support vector: k − 1 coefficients (already times
//! y) and `index:value` pairs, or `0:serial` with a precomputed kernel. Support vectors are grouped by class in the
//! order of `label`; for one of class j they are the coefficients of the pairs (1, j) … (j − 1, j), (j, j + 1) … (j,
//! k). The decision of the pair i < j is Σ coefficient·k(x, centre) − rho, and a positive one means i.
//!
//! LIBSVM writes features with eight digits, so that a centre of its own files equals its training row only to about
//! 1e-8 of its size; we write as many as are needed. The file stores neither C nor row numbers: verification needs
//! both, and the rows are found by [`LibsvmModel::find_rows`].

use std::collections::HashMap;
use std::fmt::Write as _;

use margrave_core::Error;
use margrave_core::data::{Csr, Label, Points};
use margrave_core::kernel::Kernel;

use super::container::Broken;
use crate::{c_number, c_number_exact};

/// The type of a LIBSVM model.
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

impl LibsvmKind {
    const NAMES: [(&'static str, LibsvmKind); 5] = [
        ("c_svc", LibsvmKind::CSvc),
        ("nu_svc", LibsvmKind::NuSvc),
        ("one_class", LibsvmKind::OneClass),
        ("epsilon_svr", LibsvmKind::EpsilonSvr),
        ("nu_svr", LibsvmKind::NuSvr),
    ];

    /// The name in model files.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether it is a classifier.
    pub fn classifies(self) -> bool {
        matches!(self, LibsvmKind::CSvc | LibsvmKind::NuSvc)
    }

    /// Whether it is a regression model.
    pub fn regresses(self) -> bool {
        matches!(self, LibsvmKind::EpsilonSvr | LibsvmKind::NuSvr)
    }
}

/// A LIBSVM model.
#[derive(Debug, Clone)]
pub struct LibsvmModel {
    /// The type of model.
    pub kind: LibsvmKind,
    /// The kernel.
    pub kernel: Kernel,
    /// The labels in the file's order; empty unless classifying.
    pub labels: Vec<Label>,
    /// One per pair of classes: the decision value is Σ coefficient·k(x, centre) − rho.
    pub rho: Vec<f64>,
    /// `probA`: one per pair of classes, or σ of regression; empty without probabilities.
    pub prob_a: Vec<f64>,
    /// `probB`: one per pair of classes; empty without probabilities.
    pub prob_b: Vec<f64>,
    /// `prob_density_marks` of one-class models; empty without probabilities.
    pub density_marks: Vec<f64>,
    /// Number of centres of each class; empty unless classifying.
    pub counts: Vec<usize>,
    /// m × (classes − 1), row-major; m × 1 unless classifying.
    pub coefficients: Vec<f64>,
    /// The centres; without features for a precomputed kernel.
    pub centres: Points,
    /// With a precomputed kernel, the serial (from 1) of each centre; empty otherwise.
    pub serials: Vec<u32>,
}

impl LibsvmModel {
    /// Number of coefficients per centre.
    pub fn stride(&self) -> usize {
        self.labels.len().max(2) - 1
    }

    /// The class of each centre, by the order of the labels; all 0 unless classifying.
    pub fn class_of(&self) -> Vec<u32> {
        if self.counts.is_empty() {
            return vec![0; self.centres.len()];
        }
        self.counts.iter().enumerate().flat_map(|(class, &count)| std::iter::repeat_n(class as u32, count)).collect()
    }

    /// The row of `points` that equals each centre, to the eight digits it may have been written with. Among equal
    /// rows, one that is not yet used and for which `fits(centre, row)` holds. Fails if a centre is not among the rows.
    pub fn find_rows(&self, points: &Points, fits: impl Fn(usize, usize) -> bool) -> margrave_core::Result<Vec<u32>> {
        if self.kernel == Kernel::Precomputed {
            return match self.serials.iter().find(|&&serial| serial as usize > points.len()) {
                None => Ok(self.serials.iter().map(|serial| serial - 1).collect()),
                Some(serial) => Err(Error::data(format!(
                    "a support vector is row {serial} and the data has {}: give the training data",
                    points.len()
                ))),
            };
        }
        let mut places: HashMap<String, Vec<u32>> = HashMap::new();
        for row in (0..points.len()).rev() {
            places.entry(digits(points, row)).or_default().push(row as u32);
        }
        let mut rows = Vec::with_capacity(self.centres.len());
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

    /// The file as text.
    pub fn to_text(&self) -> String {
        let mut text = format!("svm_type {}\nkernel_type {}\n", self.kind.name(), kernel_name(&self.kernel));
        // Writing to a String cannot fail.
        match self.kernel {
            Kernel::Poly { gamma, coef0, degree } => {
                let _ = write!(text, "degree {degree}\ngamma {}\ncoef0 {}\n", c_number(gamma, 17), c_number(coef0, 17));
            }
            Kernel::Rbf { gamma } => {
                let _ = writeln!(text, "gamma {}", c_number(gamma, 17));
            }
            Kernel::Sigmoid { gamma, coef0 } => {
                let _ = write!(text, "gamma {}\ncoef0 {}\n", c_number(gamma, 17), c_number(coef0, 17));
            }
            _ => {}
        }
        let _ = writeln!(text, "nr_class {}", self.labels.len().max(2));
        let _ = writeln!(text, "total_sv {}", self.centres.len());
        let mut list = |name: &str, values: &[f64]| {
            if !values.is_empty() {
                text += name;
                values.iter().for_each(|v| {
                    text.push(' ');
                    text += &c_number(*v, 17);
                });
                text.push('\n');
            }
        };
        list("rho", &self.rho);
        let labels: Vec<f64> =
            self.labels.iter().map(|label| if let Label::Number(v) = label { *v } else { f64::NAN }).collect();
        list("label", &labels);
        list("probA", &self.prob_a);
        list("probB", &self.prob_b);
        list("prob_density_marks", &self.density_marks);
        list("nr_sv", &self.counts.iter().map(|&count| count as f64).collect::<Vec<_>>());
        text += "SV\n";
        let stride = self.stride();
        for (centre, own) in self.coefficients.chunks_exact(stride).enumerate() {
            own.iter().for_each(|c| {
                text += &c_number(*c, 17);
                text.push(' ');
            });
            if self.kernel == Kernel::Precomputed {
                let _ = write!(text, "0:{} ", self.serials[centre]);
            } else {
                self.centres.visit(centre, |column, value| {
                    if value != 0.0 {
                        let _ = write!(text, "{}:{} ", column + 1, c_number_exact(value));
                    }
                });
            }
            text.push('\n');
        }
        text
    }
}

fn kernel_name(kernel: &Kernel) -> &'static str {
    match kernel {
        Kernel::Poly { .. } => "polynomial",
        other => other.name(),
    }
}

/// A row as written by LIBSVM: non-zero features, eight digits each.
fn digits(points: &Points, row: usize) -> String {
    let mut key = String::new();
    points.visit(row, |column, value| {
        if value != 0.0 {
            let _ = write!(key, "{column}:{value:.7e} ");
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

fn whole(line: usize, text: &str) -> Result<usize, Broken> {
    text.parse().map_err(|_| wrong(line, format_args!("{text:?} is not a whole number ≥ 0")))
}

/// The header of a model file.
#[derive(Default)]
struct LibsvmHeader<'a> {
    kind: Option<LibsvmKind>,
    kernel: Option<&'a str>,
    gamma: Option<f64>,
    coef0: Option<f64>,
    degree: Option<u32>,
    classes: Option<usize>,
    total: Option<usize>,
    labels: Vec<f64>,
    rho: Vec<f64>,
    prob_a: Vec<f64>,
    prob_b: Vec<f64>,
    marks: Vec<f64>,
    counts: Vec<usize>,
}

impl<'a> LibsvmHeader<'a> {
    /// Parses one line; returns true after the last.
    fn line(&mut self, at: usize, line: &'a str) -> Result<bool, Broken> {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or("");
        let values: Vec<&str> = words.collect();
        let first = || values.first().copied().ok_or_else(|| wrong(at, format_args!("{key} has no value")));
        let numbers = || values.iter().map(|value| number(at, value)).collect::<Result<Vec<_>, _>>();
        match key {
            "svm_type" => {
                let name = first()?;
                let known = LibsvmKind::NAMES.into_iter().find(|(known, _)| *known == name);
                self.kind = Some(known.ok_or_else(|| wrong(at, format_args!("unknown svm_type {name:?}")))?.1);
            }
            "kernel_type" => self.kernel = Some(first()?),
            "gamma" => self.gamma = Some(number(at, first()?)?),
            "coef0" => self.coef0 = Some(number(at, first()?)?),
            "degree" => {
                self.degree = Some(first()?.parse().map_err(|_| wrong(at, "the degree is not a whole number ≥ 0"))?);
            }
            "nr_class" => self.classes = Some(whole(at, first()?)?),
            "total_sv" => self.total = Some(whole(at, first()?)?),
            "rho" => self.rho = numbers()?,
            "label" => self.labels = numbers()?,
            "probA" => self.prob_a = numbers()?,
            "probB" => self.prob_b = numbers()?,
            "prob_density_marks" => self.marks = numbers()?,
            "nr_sv" => self.counts = values.iter().map(|value| whole(at, value)).collect::<Result<_, _>>()?,
            "SV" => return Ok(true),
            other => return Err(wrong(at, format_args!("unknown entry {other:?}"))),
        }
        Ok(false)
    }

    fn kernel(&self) -> Result<Kernel, Broken> {
        let (gamma, coef0, degree) = (self.gamma.unwrap_or(1.0), self.coef0.unwrap_or(0.0), self.degree.unwrap_or(3));
        let kernel = match self.kernel {
            Some("linear") => Kernel::Linear,
            Some("polynomial") => Kernel::Poly { gamma, coef0, degree },
            Some("rbf") => Kernel::Rbf { gamma },
            Some("sigmoid") => Kernel::Sigmoid { gamma, coef0 },
            Some("precomputed") => Kernel::Precomputed,
            Some(other) => return Err(Broken::new(format!("the LIBSVM model has the unknown kernel_type {other:?}"))),
            None => return Err(Broken::new("the LIBSVM model has no kernel_type")),
        };
        kernel.check().map_err(|e| Broken::new(format!("the LIBSVM model: {e}")))?;
        Ok(kernel)
    }

    /// Fails unless all lists have the right length.
    fn check(&self, kind: LibsvmKind, classes: usize) -> Result<(), Broken> {
        let pairs = classes * (classes - 1) / 2;
        let lengths = [
            ("rho", self.rho.len(), pairs, false),
            ("label", self.labels.len(), classes, !kind.classifies()),
            ("nr_sv", self.counts.len(), classes, !kind.classifies()),
            ("probA", self.prob_a.len(), pairs, true),
            ("probB", self.prob_b.len(), pairs, true),
        ];
        for (name, found, expected, optional) in lengths {
            if found != expected && !(optional && found == 0) {
                let what = if name == "label" { "labels" } else { name };
                return Err(Broken::new(format!("the LIBSVM model has {found} values of {what}, not {expected}")));
            }
        }
        Ok(())
    }
}

/// Reads a LIBSVM model from memory.
pub(super) fn parse(bytes: &[u8]) -> Result<LibsvmModel, Broken> {
    let text = std::str::from_utf8(bytes).map_err(|_| Broken::new("the LIBSVM model is not text"))?;
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim_end()));
    let mut header = LibsvmHeader::default();
    loop {
        let Some((at, line)) = lines.next() else {
            return Err(Broken::new("the LIBSVM model ends before its support vectors"));
        };
        if header.line(at, line)? {
            break;
        }
    }
    let kind = header.kind.ok_or_else(|| Broken::new("the LIBSVM model has no svm_type"))?;
    let kernel = header.kernel()?;
    let classes = header.classes.unwrap_or(2);
    if !kind.classifies() && classes != 2 || !(1..=46_000).contains(&classes) {
        return Err(Broken::new(format!("the LIBSVM model says nr_class {classes}, which cannot be")));
    }
    if classes == 1 {
        return Err(Broken::new("the LIBSVM model knows one class only: there is nothing to tell apart"));
    }
    header.check(kind, classes)?;
    let (stride, lookup) = (if kind.classifies() { classes - 1 } else { 1 }, kernel == Kernel::Precomputed);
    let (mut coefficients, mut serials) = (Vec::new(), Vec::new());
    let (mut starts, mut columns, mut values) = (vec![0], Vec::<u32>::new(), Vec::new());
    for (at, line) in lines {
        let mut words = line.split_whitespace().peekable();
        if words.peek().is_none() {
            continue;
        }
        for _ in 0..stride {
            let word = words.next().ok_or_else(|| wrong(at, format_args!("fewer than {stride} coefficients")))?;
            coefficients.push(number(at, word)?);
        }
        let begin = columns.len();
        let mut serial = None;
        for word in words {
            let pair = word.split_once(':').ok_or_else(|| wrong(at, format_args!("{word:?} is not index:value")))?;
            if lookup {
                if pair.0 == "0" && serial.is_none() {
                    serial = pair.1.parse::<u32>().ok().filter(|serial| *serial >= 1);
                }
                continue;
            }
            let index = pair.0.parse::<u32>().ok().filter(|i| *i >= 1);
            let index =
                index.ok_or_else(|| wrong(at, format_args!("the index {:?} is not a whole number ≥ 1", pair.0)))?;
            if columns.len() > begin && columns[columns.len() - 1] >= index - 1 {
                return Err(wrong(at, "the indices do not ascend"));
            }
            columns.push(index - 1);
            values.push(number(at, pair.1)?);
        }
        if lookup {
            serials.push(serial.ok_or_else(|| wrong(at, "no 0:serial, which a precomputed kernel needs"))?);
        }
        starts.push(columns.len());
    }
    let m = starts.len() - 1;
    if let Some(total) = header.total.filter(|total| *total != m) {
        return Err(Broken::new(format!(
            "the LIBSVM model promises {total} support vectors and has {m}: it is cut short"
        )));
    }
    if kind.classifies() && header.counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count)) != Some(m) {
        return Err(Broken::new(format!("the numbers of nr_sv do not add up to {m} support vectors")));
    }
    let d = columns.iter().max().map_or(0, |c| *c as usize + 1);
    let centres = Csr::new(d, starts, columns, values).map_err(|e| Broken::new(e.to_string()))?;
    let labels = if kind.classifies() { header.labels.into_iter().map(Label::Number).collect() } else { vec![] };
    Ok(LibsvmModel {
        kind,
        kernel,
        labels,
        rho: header.rho,
        prob_a: header.prob_a,
        prob_b: header.prob_b,
        density_marks: header.marks,
        counts: if kind.classifies() { header.counts } else { vec![] },
        coefficients,
        centres: centres.into(),
        serials,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class 2\ntotal_sv 2\nrho 0.25\nlabel 1 -1\n\
                         nr_sv 1 1\nSV\n0.5 1:0.33333333 3:1 \n-0.5 2:-2e-05 \n";

    const THREE: &str = "svm_type nu_svc\nkernel_type polynomial\ndegree 2\ngamma 0.5\ncoef0 1\nnr_class 3\ntotal_sv 4\n\
                         rho 0.25 -0.5 0.125\nlabel 7 -3 2\nprobA -1.5 -2 -3\nprobB 0 0.5 -0.25\nnr_sv 2 1 1\nSV\n\
                         0.5 0 1:1 \n0 1 2:2 \n-0.5 0.25 1:3 \n-1 -0.25 2:4 \n";

    #[test]
    fn a_model_by_hand() {
        let model = parse(MODEL.as_bytes()).unwrap();
        assert_eq!((model.kind, model.kernel, model.rho.as_slice()), (LibsvmKind::CSvc, Kernel::rbf(0.5), &[0.25][..]));
        assert_eq!(model.labels, [Label::Number(1.0), Label::Number(-1.0)]);
        assert_eq!((model.coefficients.as_slice(), model.centres.dims()), (&[0.5, -0.5][..], 3));
        let rows = Points::dense_f64(3, 3, vec![0.0, -2e-5, 0.0, 1.0 / 3.0, 0.0, 1.0, 1.0 / 3.0, 0.0, 1.0]).unwrap();
        assert_eq!(model.find_rows(&rows, |_, _| true).unwrap(), [1, 0]);
        assert_eq!(model.find_rows(&rows, |_, row| row != 1).unwrap(), [2, 0]);
        let other = Points::dense_f64(1, 3, vec![0.0, -2e-5, 0.0]).unwrap();
        assert!(model.find_rows(&other, |_, _| true).unwrap_err().to_string().contains("support vector 1"));
    }

    #[test]
    fn reading_and_writing_gives_the_same_text() {
        for text in [
            MODEL,
            THREE,
            "svm_type one_class\nkernel_type precomputed\nnr_class 2\ntotal_sv 2\nrho 1.5\nSV\n1 0:3 \n0.5 0:12 \n",
            "svm_type epsilon_svr\nkernel_type sigmoid\ngamma 0.10000000000000001\ncoef0 -1\nnr_class 2\ntotal_sv 1\n\
             rho -0.5\nprobA 0.25\nSV\n-1 5:1e-05 \n",
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().to_text(), text);
        }
        let three = parse(THREE.as_bytes()).unwrap();
        assert_eq!((three.class_of(), three.stride()), (vec![0, 0, 1, 2], 2));
    }

    #[test]
    fn errors_state_what_is_wrong() {
        let say = |from: &str, to: &str| {
            assert!(MODEL.contains(from));
            parse(MODEL.replace(from, to).as_bytes()).unwrap_err().to_string()
        };
        assert!(say("c_svc", "d_svc").contains("line 1"));
        assert!(say("total_sv 2", "total_sv 3").contains("cut short"));
        assert!(say("nr_class 2", "nr_class 3").contains("rho"));
        assert!(say("nr_class 2", "nr_class 1").contains("one class"));
        assert!(say("nr_class 2", "nr_class 99999999999").contains("cannot be"));
        assert!(say("nr_sv 1 1", "nr_sv 1 2").contains("nr_sv"));
        assert!(say("3:1", "1:1").contains("ascend"));
        assert!(say("3:1", "0:1").contains("≥ 1"));
        assert!(say("3:1", "3:nan").contains("finite"));
        assert!(say("3:1", "3").contains("index:value"));
        assert!(say("rho 0.25", "rho 1 2 3").contains("rho"));
        assert!(say("gamma 0.5", "gamma -1").contains("gamma"));
        assert!(say("label 1 -1\n", "").contains("labels"));
        assert!(say("SV\n0.5", "XX\n0.5").contains("unknown entry"));
        assert!(say("rbf\ngamma 0.5", "precomputed").contains("0:serial"));
        for text in [MODEL, THREE] {
            for end in 0..text.len() - 1 {
                // A truncation may leave a shorter number, but never causes a panic.
                let _ = parse(&text.as_bytes()[..end]);
            }
        }
    }
}
