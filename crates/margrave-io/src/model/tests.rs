//! Exact round trips, and untrusted files.

use margrave_core::certificate::{Certificate, certify};
use margrave_core::data::{Csr, Label, Points, ScaleKind, Scaling, Storage};
use margrave_core::gram::PrecomputedGram;
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Hinge, LossSpec};
use margrave_core::model::{
    Calibration, Expansion, Model, Origin, Reason, Recipe, Record, Rule, Scheme, Sigmoid, Threshold, ThresholdRule,
};
use margrave_core::problem::{Constraint, Formulation, KernelProblem, Task};
use margrave_core::{Control, Error, Status, Threads};
use proptest::prelude::*;

use super::{from_bytes, load, save, to_bytes};
use crate::Schema;

/// A certificate read from a file: only the engine can construct one.
fn certificate(gap: f64) -> Certificate {
    let text = format!(
        r#"{{"kind": "optimality", "primal": {}, "dual": 1e-300, "gap": {gap:e}, "rounding": 1e-9, "relative_gap": 0.1,
        "violation": {}, "feasible": true, "infeasibility": 0.0, "bias": [-1e22], "squared_norm": 1.1, "definite": true, "worst": []}}"#,
        std::f64::consts::PI,
        2.0 / 3.0
    );
    serde_json::from_str(&text).unwrap()
}

/// A small model with numbers that are hard to write in decimal.
fn example(centres: Points) -> Model {
    let (m, d) = (centres.len(), centres.dims());
    let record = Record {
        certificate: certificate(0.1),
        status: Status::TimeLimit,
        iterations: u64::MAX,
        seconds: 0.1,
        kernel_entries: 7,
        support_vectors: m,
        bounded: 1,
        rho: 1.0,
        tube: None,
    };
    let beta = (0..m).map(|i| (i as f64 + 0.1).sin() * 10f64.powi(i as i32 * 30 - 60)).collect();
    let rows = (0..m as u32).map(|i| 10 * i).collect();
    let recipe = Recipe {
        task: Task::Classify,
        formulation: Formulation::Cost { c: 0.1 + 0.2 },
        loss: Some(LossSpec::Huber { delta: 5e-324 }),
        free_bias: true,
        penalty: margrave_core::problem::Penalty::L2,
        intercept_scaling: None,
        labels: vec![Label::Number(-1.0), Label::Text("ünicode \"quoted\"".into())],
        class_weights: vec![1.0, 2.5],
        scaling: Some(Scaling { kind: ScaleKind::Standard, shift: vec![0.1; d.min(9)], factor: vec![1e300; d.min(9)] }),
        schema: Some(serde_json::to_string(&Schema::plain(d, centres.is_sparse())).unwrap()),
        solver: "decomposition".into(),
    };
    let expansion = Expansion::new(Kernel::Rbf { gamma: 1.0 / 3.0 }, centres, rows, beta, vec![-0.1], d).unwrap();
    let mut model = Model::new(recipe, Scheme::One, expansion, vec![0.3; m], vec![record], 10 * m + 1);
    let sigmoid = Sigmoid { a: -0.1, below: -0.1, b: 0.0 };
    model.calibration = Some(Calibration::of_sigmoids(&[sigmoid], Origin::LeaveOneOut, Rule::Agree, Reason::Usual));
    model
}

fn dense() -> Points {
    Points::dense_f64(3, 2, vec![0.1, -0.0, 1e-308, 2.0 / 3.0, f64::MAX, -1.0]).unwrap()
}

fn sparse() -> Points {
    Csr::new(1_000_000_000, vec![0, 2, 2, 3], vec![0, 999_999_999, 5], vec![0.1f32, 0.2, 0.3]).unwrap().into()
}

/// All parts of a model as text, numbers with all their digits.
fn shown(model: &Model) -> String {
    let centres = match model.expansion.centres().storage() {
        Storage::DenseF32(m) => format!("{:?}", m.values()),
        Storage::DenseF64(m) => format!("{:?}", m.values()),
        Storage::SparseF32(m) => format!("{:?} {:?} {:?}", m.starts(), m.columns(), m.values()),
        Storage::SparseF64(m) => format!("{:?} {:?} {:?}", m.starts(), m.columns(), m.values()),
    };
    let f = &model.expansion;
    format!(
        "{:?} {:?} {:?} {} {:?} {:?} {:?} {:?} {:?} {:?} {} {} {:?} {:?} {:?} {:?} {} {:?} {centres}",
        model.task,
        model.formulation,
        model.loss,
        model.free_bias,
        model.labels,
        model.class_weights,
        model.scaling,
        model.schema,
        model.costs,
        model.machines,
        model.solver,
        model.n,
        f.kernel(),
        f.rows(),
        f.coefficients(),
        f.bias(),
        f.width(),
        model.calibration
    )
}

#[test]
fn a_round_trip_changes_no_bit() {
    let mut wide = example(sparse());
    wide.scaling = None;
    for model in [example(dense()), wide] {
        let bytes = to_bytes(&model).unwrap();
        let back = from_bytes(&bytes, "m").unwrap();
        assert_eq!(shown(&back), shown(&model));
        assert_eq!(to_bytes(&back).unwrap(), bytes);
    }
}

#[test]
fn what_version_1_cannot_say_is_version_2() {
    let version = |model: &Model| {
        let text = String::from_utf8_lossy(&to_bytes(model).unwrap()).into_owned();
        text.split(r#"\"version\":"#).nth(1).and_then(|rest| rest.chars().next())
    };
    let calibrated = |a: f64, below: f64, b: f64, rule: Rule| {
        let mut model = example(dense());
        let sigmoid = Sigmoid { a, below, b };
        model.calibration = Some(Calibration::of_sigmoids(&[sigmoid], Origin::Folds, rule, Reason::Asked));
        model
    };
    assert_eq!(version(&example(dense())), Some('1'));
    let mut cut = example(dense());
    let rule = ThresholdRule::Cost { fp: 1.0, fneg: 0.1 };
    cut.threshold = Some(Threshold { score: 0.1 + 0.2, rule, origin: Origin::Folds, precision: 0.5, recall: 0.25 });
    for model in [calibrated(-1.0, -2.0, 0.0, Rule::Agree), calibrated(-1.0, -1.0, 0.3, Rule::Free), cut.clone()] {
        assert_eq!(version(&model), Some('2'));
        let back = from_bytes(&to_bytes(&model).unwrap(), "m").unwrap();
        assert_eq!((&back.calibration, &back.threshold), (&model.calibration, &model.threshold));
        assert_eq!(back.decide(&[0.2, 0.4]), model.decide(&[0.2, 0.4]));
    }
    assert_eq!(cut.decide(&[0.2, 0.4]), margrave_core::model::Prediction::Labels(vec![0, 1]));
    // A file without the new keys, as version 1 wrote it.
    let old = r#"{"name": "sigmoid", "a": [-1.5], "b": [0.0], "origin": "leave-one-out"}"#;
    let old: Calibration = serde_json::from_str(old).unwrap();
    assert_eq!(old.sigmoids(), Some(vec![Sigmoid { a: -1.5, below: -1.5, b: 0.0 }]));
    assert!(matches!(old, Calibration::Sigmoid { rule: Rule::Agree, reason: Reason::Unknown, .. }));
}

#[test]
fn saving_and_loading_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.model");
    save(&example(dense()), &path).unwrap();
    assert_eq!(shown(&load(&path).unwrap()), shown(&example(dense())));
    let missing = load(folder.path().join("b.model")).unwrap_err().to_string();
    assert!(missing.contains("b.model: cannot open it"), "{missing}");
}

#[test]
fn an_infinite_bound_is_stored_as_a_finite_bound() {
    // Σβ = 30 is infeasible within the boxes: there is no lower bound.
    let gram = PrecomputedGram::new(Points::dense_f64(1, 1, vec![1.0]).unwrap());
    let problem = KernelProblem::new(&gram, &[1.0], &[1.0], &Hinge, Constraint::Sum(30.0)).unwrap();
    let endless = certify(&problem, &[0.5], None, None, &Control::unlimited(Threads::one())).unwrap();
    assert_eq!(endless.gap(), Some(f64::INFINITY));
    let mut model = example(dense());
    model.machines[0].certificate = endless;
    let back = from_bytes(&to_bytes(&model).unwrap(), "m").unwrap();
    let certificate = &back.machines[0].certificate;
    assert_eq!((certificate.dual(), certificate.gap()), (Some(-f64::MAX), Some(f64::MAX)));
}

#[test]
fn a_precomputed_kernel_needs_no_centres() {
    let mut model = example(dense());
    let empty = Points::dense_f64(2, 0, vec![]).unwrap();
    model.expansion = Expansion::new(Kernel::Precomputed, empty, vec![1, 4], vec![0.5, -0.5], vec![0.1], 31).unwrap();
    (model.scaling, model.schema) = (None, None);
    model.costs.truncate(2);
    let back = from_bytes(&to_bytes(&model).unwrap(), "m").unwrap();
    assert_eq!(shown(&back), shown(&model));
}

#[test]
fn inconsistent_parts_are_rejected() {
    let broken = |change: fn(&mut Model)| {
        let mut model = example(dense());
        change(&mut model);
        to_bytes(&model).expect_err("a model whose parts do not fit was written")
    };
    broken(|m| m.labels.truncate(1));
    broken(|m| m.costs[1] = -1.0);
    broken(|m| m.n = 20);
    broken(|m| m.machines[0].rho = 0.0);
    broken(|m| m.class_weights.push(1.0));
    broken(|m| m.formulation = Formulation::Nu { nu: 2.0, c: 1.0 });
    broken(|m| m.loss = Some(LossSpec::Huber { delta: -1.0 }));
    broken(|m| m.scaling = Some(Scaling { kind: ScaleKind::MinMax, shift: vec![], factor: vec![] }));
    broken(|m| m.schema = Some(serde_json::to_string(&Schema::plain(7, false)).unwrap()));
    broken(|m| m.schema = Some("nonsense".into()));
    broken(|m| {
        if let Some(Calibration::Sigmoid { below, .. }) = &mut m.calibration {
            *below = vec![-1.0, -1.0];
        }
    });
    broken(|m| {
        let rule = ThresholdRule::MaxF1;
        m.threshold = Some(Threshold { score: f64::NAN, rule, origin: Origin::Folds, precision: 0.0, recall: 0.0 });
    });
    assert!(matches!(broken(|m| m.machines.clear()), Error::Shape { .. }));
    assert!(matches!(broken(|m| m.costs.truncate(1)), Error::Shape { .. }));
}

#[test]
fn other_files_and_later_versions_are_reported() {
    let say = |bytes: &[u8]| from_bytes(bytes, "x.model").unwrap_err().to_string();
    for bytes in [&b""[..], b"svm_type c_svc\n", b"\x00\x00\x00\x00\x00\x00\x00\x00", &[0xff; 64]] {
        assert!(say(bytes).starts_with("x.model: not a Margrave model, or a damaged one"), "{}", say(bytes));
    }
    let empty = b"{}";
    let mut plain = (empty.len() as u64).to_le_bytes().to_vec();
    plain.extend(empty);
    assert!(say(&plain).contains("not a Margrave model"), "{}", say(&plain));
    let bytes = to_bytes(&example(dense())).unwrap();
    let at = |needle: &[u8]| bytes.windows(needle.len()).position(|w| w == needle).unwrap();
    let mut later = bytes.clone();
    let version = at(br#"\"version\":1"#) + br#"\"version\":"#.len();
    later[version] = b'9';
    assert!(say(&later).contains("version 9"), "{}", say(&later));
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = to_bytes(&example(dense())).unwrap();
    for end in 0..bytes.len() {
        assert!(from_bytes(&bytes[..end], "m").is_err(), "{end} bytes were accepted");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Changed bytes give an error or a consistent model: never a panic, never excessive memory.
    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = to_bytes(&example(dense())).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(model) = from_bytes(&bytes, "m") {
            prop_assert!(super::check(&model).is_ok());
        }
    }

    #[test]
    fn junk_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = from_bytes(&bytes, "m");
    }
}
