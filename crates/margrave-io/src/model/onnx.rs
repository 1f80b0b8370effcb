//! Export of models to ONNX.
//!
//! The model is written with basic operators in double precision, not as `SVMClassifier`, whose coefficients are single
//! precision: scores in a runtime equal ours up to rounding, every kernel is supported, and scaling is part of the
//! graph. Input `X` (double, rows × features; rows × training rows with a precomputed kernel). Outputs: `label` and
//! `scores` of classifiers and novelty detectors (labels 1 and −1), `variable` of regressions, and `probabilities` if
//! the model has them. Pairwise probabilities are coupled by solving the linear system of the coupling, with
//! elimination in the graph.

use margrave_core::data::Label;
use margrave_core::kernel::Kernel;
use margrave_core::model::{Calibration, Model, Rule, Scheme, pairs};
use margrave_core::problem::{Formulation, Task};
use margrave_core::{Error, Result};

use super::protobuf::Message;

const DOUBLE: i64 = 11;
const INT64: i64 = 7;
const STRING: i64 = 8;
/// ONNX 1.12: operators of version 17.
const OPSET: i64 = 17;
const IR_VERSION: i64 = 8;

/// A graph under construction.
#[derive(Default)]
struct Graph {
    nodes: Vec<Message>,
    constants: Vec<Message>,
    outputs: Vec<Message>,
    names: usize,
}

fn tensor(name: &str, dims: &[usize], kind: i64) -> Message {
    let message = dims.iter().fold(Message::default(), |message, &dim| message.int(1, dim as i64));
    message.int(2, kind).bytes(8, name)
}

/// A named input or output; `None` is the number of rows.
fn value_info(name: &str, kind: i64, dims: &[Option<usize>]) -> Message {
    let shape = dims.iter().fold(Message::default(), |shape, dim| {
        let dim = match dim {
            Some(size) => Message::default().int(1, *size as i64),
            None => Message::default().bytes(2, "N"),
        };
        shape.message(1, dim)
    });
    let tensor = Message::default().int(1, kind).message(2, shape);
    Message::default().bytes(1, name).message(2, Message::default().message(1, tensor))
}

impl Graph {
    fn fresh(&mut self, hint: &str) -> String {
        self.names += 1;
        format!("margrave/{hint}_{}", self.names)
    }

    fn doubles(&mut self, hint: &str, dims: &[usize], values: &[f64]) -> String {
        let name = self.fresh(hint);
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constants.push(tensor(&name, dims, DOUBLE).bytes(9, raw));
        name
    }

    fn scalar(&mut self, value: f64) -> String {
        self.doubles("c", &[1], &[value])
    }

    fn ints(&mut self, hint: &str, dims: &[usize], values: &[i64]) -> String {
        let name = self.fresh(hint);
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constants.push(tensor(&name, dims, INT64).bytes(9, raw));
        name
    }

    fn node(&mut self, op: &str, inputs: &[&str], output: &str, attributes: Vec<Message>) {
        let message = inputs.iter().fold(Message::default(), |node, input| node.bytes(1, input));
        let message = message.bytes(2, output).bytes(3, format!("{op}_{}", self.nodes.len())).bytes(4, op);
        self.nodes.push(attributes.into_iter().fold(message, |node, attribute| node.message(5, attribute)));
    }

    /// An operator with one output of a new name.
    fn op(&mut self, op: &str, inputs: &[&str]) -> String {
        self.op_with(op, inputs, vec![])
    }

    fn op_with(&mut self, op: &str, inputs: &[&str], attributes: Vec<Message>) -> String {
        let output = self.fresh("v");
        self.node(op, inputs, &output, attributes);
        output
    }

    /// `inputs[0] op scalar`.
    fn with_scalar(&mut self, op: &str, input: &str, value: f64) -> String {
        let constant = self.scalar(value);
        self.op(op, &[input, &constant])
    }

    fn sum_over(&mut self, input: &str, axis: i64, keep: bool) -> String {
        let axes = self.ints("axes", &[1], &[axis]);
        self.op_with("ReduceSum", &[input, &axes], vec![int_attribute("keepdims", i64::from(keep))])
    }

    fn output(&mut self, value: &str, name: &str, kind: i64, dims: &[Option<usize>]) {
        self.node("Identity", &[value], name, vec![]);
        self.outputs.push(value_info(name, kind, dims));
    }
}

fn int_attribute(name: &str, value: i64) -> Message {
    Message::default().bytes(1, name).int(3, value).int(20, 2)
}

/// K(x, centres), rows × m, from the scaled points `x`.
fn kernel_matrix(graph: &mut Graph, kernel: &Kernel, x: &str, centres: &[f64], m: usize, d: usize) -> Result<String> {
    let mut transposed = vec![0.0; m * d];
    for i in 0..m {
        for j in 0..d {
            transposed[j * m + i] = centres[i * d + j];
        }
    }
    let dot = |graph: &mut Graph| {
        let c = graph.doubles("centres", &[d, m], &transposed);
        graph.op("MatMul", &[x, &c])
    };
    let distance = |graph: &mut Graph| {
        let norms: Vec<f64> = centres.chunks(d.max(1)).map(|c| c.iter().map(|v| v * v).sum()).collect();
        let product = dot(graph);
        let squares = graph.op("Mul", &[x, x]);
        let own = graph.sum_over(&squares, 1, true);
        let theirs = graph.doubles("norms", &[1, m], &norms);
        let twice = graph.with_scalar("Mul", &product, 2.0);
        let sum = graph.op("Add", &[&own, &theirs]);
        let difference = graph.op("Sub", &[&sum, &twice]);
        // Rounding may give a small negative value.
        graph.op("Relu", &[&difference])
    };
    // Every point with every centre, feature by feature: rows × m × d.
    let apart = |graph: &mut Graph, op: &str| {
        let c = graph.doubles("centres", &[1, m, d], centres);
        let axes = graph.ints("axes", &[1], &[1]);
        let wide = graph.op("Unsqueeze", &[x, &axes]);
        graph.op(op, &[&wide, &c])
    };
    let decay = |graph: &mut Graph, value: &str, gamma: f64| {
        let scaled = graph.with_scalar("Mul", value, -gamma);
        graph.op("Exp", &[&scaled])
    };
    Ok(match *kernel {
        Kernel::Linear | Kernel::Precomputed => dot(graph),
        Kernel::Poly { gamma, coef0, degree } => {
            let product = dot(graph);
            let scaled = graph.with_scalar("Mul", &product, gamma);
            let shifted = graph.with_scalar("Add", &scaled, coef0);
            graph.with_scalar("Pow", &shifted, f64::from(degree))
        }
        Kernel::Sigmoid { gamma, coef0 } => {
            let product = dot(graph);
            let scaled = graph.with_scalar("Mul", &product, gamma);
            let shifted = graph.with_scalar("Add", &scaled, coef0);
            graph.op("Tanh", &[&shifted])
        }
        Kernel::Rbf { gamma } => {
            let squared = distance(graph);
            decay(graph, &squared, gamma)
        }
        Kernel::Matern32 { gamma } | Kernel::Matern52 { gamma } => {
            let fifth = matches!(kernel, Kernel::Matern52 { .. });
            let squared = distance(graph);
            let factor = if fifth { 10.0 * gamma } else { 6.0 * gamma };
            let inner = graph.with_scalar("Mul", &squared, factor);
            // s = √3·r or √5·r with r = √(2γ)·‖x − x′‖.
            let s = graph.op("Sqrt", &[&inner]);
            let mut polynomial = graph.with_scalar("Add", &s, 1.0);
            if fifth {
                // 5r²/3 = s²/3.
                let third = graph.with_scalar("Mul", &inner, 1.0 / 3.0);
                polynomial = graph.op("Add", &[&polynomial, &third]);
            }
            let fall = decay(graph, &s, 1.0);
            graph.op("Mul", &[&polynomial, &fall])
        }
        Kernel::Laplacian { gamma } => {
            let difference = apart(graph, "Sub");
            let size = graph.op("Abs", &[&difference]);
            let sum = graph.sum_over(&size, 2, false);
            decay(graph, &sum, gamma)
        }
        Kernel::Chi2 { gamma } => {
            let (difference, sum) = (apart(graph, "Sub"), apart(graph, "Add"));
            let square = graph.op("Mul", &[&difference, &difference]);
            let zero = graph.scalar(0.0);
            let one = graph.scalar(1.0);
            let nothing = graph.op("Equal", &[&sum, &zero]);
            let divisor = graph.op("Where", &[&nothing, &one, &sum]);
            let terms = graph.op("Div", &[&square, &divisor]);
            let total = graph.sum_over(&terms, 2, false);
            decay(graph, &total, gamma)
        }
    })
}

/// The scores, rows × outputs.
fn scores(graph: &mut Graph, model: &Model, x: &str) -> Result<String> {
    let f = &model.expansion;
    let (m, k, d) = (f.len(), f.outputs(), f.width());
    let product = match f.weights() {
        Some(w) => {
            let w = graph.doubles("weights", &[d, k], w);
            graph.op("MatMul", &[x, &w])
        }
        None => {
            let mut centres = vec![0.0; m * d];
            centres.chunks_mut(d.max(1)).enumerate().for_each(|(at, row)| f.centres().copy_row(at, row));
            let entries = kernel_matrix(graph, f.kernel(), x, &centres, m, d)?;
            let mut coefficients = vec![0.0; m * k];
            for output in 0..k {
                f.column(output).iter().enumerate().for_each(|(at, c)| coefficients[at * k + output] = *c);
            }
            let coefficients = graph.doubles("coefficients", &[m, k], &coefficients);
            graph.op("MatMul", &[&entries, &coefficients])
        }
    };
    let mut bias = f.bias().to_vec();
    let ball = matches!(model.formulation, Formulation::Svdd { .. });
    if ball && f.kernel().unit_diagonal() {
        bias.iter_mut().for_each(|b| *b -= 0.5);
    } else if ball {
        return Err(Error::data("a smallest ball with this kernel cannot be written as ONNX: use an RBF kernel"));
    }
    let bias = graph.doubles("bias", &[1, k], &bias);
    Ok(graph.op("Add", &[&product, &bias]))
}

/// The index of the predicted label, one per row.
fn winner(graph: &mut Graph, model: &Model, scores: &str) -> String {
    let classes = model.labels.len();
    let first = || vec![int_attribute("axis", 1), int_attribute("keepdims", 0)];
    match model.scheme {
        Scheme::One => {
            let cut = graph.scalar(model.cut());
            let above = graph.op("Greater", &[scores, &cut]);
            let code = graph.op_with("Cast", &[&above], vec![int_attribute("to", INT64)]);
            let axes = graph.ints("axes", &[1], &[1]);
            graph.op("Squeeze", &[&code, &axes])
        }
        Scheme::OneVsRest | Scheme::CrammerSinger | Scheme::Outputs => graph.op_with("ArgMax", &[scores], first()),
        Scheme::OneVsOne => {
            let outputs = model.expansion.outputs();
            let (mut gain, mut base) = (vec![0.0; outputs * classes], vec![0.0; classes]);
            for (output, (i, j)) in pairs(classes).enumerate() {
                gain[output * classes + j] += 1.0;
                gain[output * classes + i] -= 1.0;
                base[i] += 1.0;
            }
            let zero = graph.scalar(0.0);
            let above = graph.op("Greater", &[scores, &zero]);
            let won = graph.op_with("Cast", &[&above], vec![int_attribute("to", DOUBLE)]);
            let gain = graph.doubles("gain", &[outputs, classes], &gain);
            let base = graph.doubles("base", &[1, classes], &base);
            let swing = graph.op("MatMul", &[&won, &gain]);
            let votes = graph.op("Add", &[&swing, &base]);
            graph.op_with("ArgMax", &[&votes], first())
        }
    }
}

/// The labels as a constant; integers if all labels are.
fn labels(graph: &mut Graph, labels: &[Label]) -> (String, i64) {
    let whole: Option<Vec<i64>> = labels
        .iter()
        .map(|label| match label {
            Label::Number(v) if v.fract() == 0.0 && v.abs() < 9e15 => Some(*v as i64),
            _ => None,
        })
        .collect();
    if let Some(values) = whole {
        return (graph.ints("labels", &[values.len()], &values), INT64);
    }
    let name = graph.fresh("labels");
    let message = tensor(&name, &[labels.len()], STRING);
    graph.constants.push(labels.iter().fold(message, |message, label| message.bytes(6, label.to_string())));
    (name, STRING)
}

/// Probabilities are at least this far from 0 and 1, as in the model.
const LEAST: f64 = 1e-7;

fn probabilities(graph: &mut Graph, model: &Model, scores: &str, code: &str) -> Option<String> {
    let Some(Calibration::Sigmoid { a, below, b, rule, .. }) = &model.calibration else { return None };
    let minus = |values: &[f64]| values.iter().map(|v| -v).collect::<Vec<_>>();
    let mut slope = graph.doubles("slope", &[1, a.len()], &minus(a));
    if !below.is_empty() {
        let other = graph.doubles("slope", &[1, below.len()], &minus(below));
        let zero = graph.scalar(0.0);
        let above = graph.op("Greater", &[scores, &zero]);
        slope = graph.op("Where", &[&above, &slope, &other]);
    }
    let shift = graph.doubles("shift", &[1, b.len()], &minus(b));
    let scaled = graph.op("Mul", &[scores, &slope]);
    let shifted = graph.op("Add", &[&scaled, &shift]);
    let positive = graph.op("Sigmoid", &[&shifted]);
    let (least, most) = (graph.scalar(LEAST), graph.scalar(1.0 - LEAST));
    let positive = graph.op("Max", &[&positive, &least]);
    let positive = graph.op("Min", &[&positive, &most]);
    let classes = model.labels.len();
    let p = match model.scheme {
        Scheme::One => {
            let one = graph.scalar(1.0);
            let negative = graph.op("Sub", &[&one, &positive]);
            return Some(graph.op_with("Concat", &[&negative, &positive], vec![int_attribute("axis", 1)]));
        }
        Scheme::OneVsRest | Scheme::CrammerSinger | Scheme::Outputs => {
            let total = graph.sum_over(&positive, 1, true);
            graph.op("Div", &[&positive, &total])
        }
        Scheme::OneVsOne => coupled(graph, classes, &positive),
    };
    Some(if *rule == Rule::Agree { made_largest(graph, classes, &p, code) } else { p })
}

/// The probabilities of k classes from those of the second class of each pair, rows × pairs.
///
/// Wu, Lin and Weng's second method has constant Q·p over the classes at its solution, so p is (Q + 11ᵀ)⁻¹·1 divided by
/// its sum. That matrix is positive definite; it is eliminated row by row, without pivoting.
fn coupled(graph: &mut Graph, k: usize, second: &str) -> String {
    // r[i, j] = P(i | i or j), as rows × k·k: ±1 times P of the pair, plus a constant.
    let outputs = k * (k - 1) / 2;
    let (mut gain, mut base) = (vec![0.0; outputs * k * k], vec![0.0; k * k]);
    for (output, (i, j)) in pairs(k).enumerate() {
        gain[output * k * k + j * k + i] = 1.0;
        gain[output * k * k + i * k + j] = -1.0;
        base[i * k + j] = 1.0;
    }
    let gain = graph.doubles("gain", &[outputs, k * k], &gain);
    let base = graph.doubles("base", &[1, k * k], &base);
    let r = graph.op("MatMul", &[second, &gain]);
    let r = graph.op("Add", &[&r, &base]);
    let shape = graph.ints("shape", &[3], &[-1, k as i64, k as i64]);
    let r = graph.op("Reshape", &[&r, &shape]);
    let turned = graph.op_with("Transpose", &[&r], vec![ints_attribute("perm", &[0, 2, 1])]);
    // Off the diagonal −r[j, t]·r[t, j]; on it Σⱼ r[j, t]².
    let product = graph.op("Mul", &[&r, &turned]);
    let squares = graph.op("Mul", &[&r, &r]);
    let sums = graph.sum_over(&squares, 1, false);
    let axes = graph.ints("axes", &[1], &[2]);
    let sums = graph.op("Unsqueeze", &[&sums, &axes]);
    let identity: Vec<f64> = (0..k * k).map(|at| f64::from(u8::from(at / k == at % k))).collect();
    let identity = graph.doubles("identity", &[1, k, k], &identity);
    let diagonal = graph.op("Mul", &[&sums, &identity]);
    let q = graph.op("Sub", &[&diagonal, &product]);
    let q = graph.with_scalar("Add", &q, 1.0);
    // The right-hand side, all ones, as an additional column.
    let ones = graph.op("Mul", &[&sums, &sums]);
    let zero = graph.with_scalar("Mul", &ones, 0.0);
    let ones = graph.with_scalar("Add", &zero, 1.0);
    let mut system = graph.op_with("Concat", &[&q, &ones], vec![int_attribute("axis", 2)]);
    let rows_axis = graph.ints("axes", &[1], &[1]);
    let columns_axis = graph.ints("axes", &[1], &[2]);
    for t in 0..k {
        let here = graph.ints("at", &[1], &[t as i64]);
        let next = graph.ints("at", &[1], &[t as i64 + 1]);
        let row = graph.op("Slice", &[&system, &here, &next, &rows_axis]);
        let pivot = graph.op("Slice", &[&row, &here, &next, &columns_axis]);
        let row = graph.op("Div", &[&row, &pivot]);
        // Eliminate this column in every other row; divide the pivot row by the pivot.
        let unit: Vec<f64> = (0..k).map(|i| f64::from(u8::from(i == t))).collect();
        let unit = graph.doubles("unit", &[1, k, 1], &unit);
        let column = graph.op("Slice", &[&system, &here, &next, &columns_axis]);
        let column = graph.op("Sub", &[&column, &unit]);
        let change = graph.op("Mul", &[&column, &row]);
        system = graph.op("Sub", &[&system, &change]);
    }
    let (last, end) = (graph.ints("at", &[1], &[k as i64]), graph.ints("at", &[1], &[k as i64 + 1]));
    let p = graph.op("Slice", &[&system, &last, &end, &columns_axis]);
    let p = graph.op("Squeeze", &[&p, &columns_axis]);
    let p = graph.op("Relu", &[&p]);
    let total = graph.sum_over(&p, 1, true);
    graph.op("Div", &[&p, &total])
}

/// The smallest change of p that makes the class `code` the most probable, as in the model: the class and the largest
/// of the others all get their mean, over the subset for which that mean is largest.
fn made_largest(graph: &mut Graph, k: usize, p: &str, code: &str) -> String {
    let numbers: Vec<i64> = (0..k as i64).collect();
    let numbers = graph.ints("classes", &[1, k], &numbers);
    let axes = graph.ints("axes", &[1], &[1]);
    let code = graph.op("Unsqueeze", &[code, &axes]);
    let winner = graph.op("Equal", &[&code, &numbers]);
    let winner = graph.op_with("Cast", &[&winner], vec![int_attribute("to", DOUBLE)]);
    let one = graph.scalar(1.0);
    let others = graph.op("Sub", &[&one, &winner]);
    let own = graph.op("Mul", &[p, &winner]);
    let own = graph.sum_over(&own, 1, true);
    let rest = graph.op("Mul", &[p, &others]);
    // The other classes in decreasing order; the winner itself counts as 0 among them and comes last.
    let all = graph.ints("k", &[1], &[k as i64]);
    let sorted = graph.fresh("v");
    let places = graph.fresh("v");
    let message = Message::default().bytes(1, &rest).bytes(1, &all).bytes(2, &sorted).bytes(2, places);
    graph.nodes.push(message.bytes(3, format!("TopK_{}", graph.nodes.len())).bytes(4, "TopK"));
    let axis = graph.ints("axis", &[], &[1]);
    let running = graph.op("CumSum", &[&sorted, &axis]);
    let running = graph.op("Add", &[&running, &own]);
    let counts: Vec<f64> = (0..k).map(|m| m as f64 + 2.0).collect();
    let counts = graph.doubles("counts", &[1, k], &counts);
    let means = graph.op("Div", &[&running, &counts]);
    let level = graph.op_with("ReduceMax", &[&means], vec![ints_attribute("axes", &[1]), int_attribute("keepdims", 1)]);
    let level = graph.op("Max", &[&level, &own]);
    let edge = graph.with_scalar("Mul", &level, 1.0 - 1e-9);
    let rest = graph.op("Min", &[&rest, &edge]);
    let total = graph.sum_over(&rest, 1, true);
    let left = graph.op("Sub", &[&one, &total]);
    let left = graph.op("Mul", &[&left, &winner]);
    graph.op("Add", &[&rest, &left])
}

fn ints_attribute(name: &str, values: &[i64]) -> Message {
    values.iter().fold(Message::default().bytes(1, name), |message, &v| message.int(8, v)).int(20, 7)
}

/// What an ONNX file says beyond the model.
#[derive(Debug, Clone, Default)]
pub struct OnnxOptions {
    /// Names of the features: one input (rows × 1) per name instead of `X`. Empty: one input `X`.
    pub columns: Vec<String>,
    /// Keys and values of the metadata; the task, the kernel and the loss are added.
    pub metadata: Vec<(String, String)>,
}

/// The bytes of the ONNX file of a model, with one input `X`.
pub fn to_onnx(model: &Model) -> Result<Vec<u8>> {
    to_onnx_with(model, &OnnxOptions::default())
}

/// The inputs of the graph, and the name of the tensor of all features.
fn inputs(graph: &mut Graph, columns: &[String], d: usize) -> Result<(Vec<Message>, String)> {
    if columns.is_empty() {
        return Ok((vec![value_info("X", DOUBLE, &[None, Some(d)])], "X".to_owned()));
    }
    if columns.len() != d {
        return Err(Error::Shape { what: "names of the features", expected: d, found: columns.len() });
    }
    let mut sorted: Vec<&String> = columns.iter().collect();
    sorted.sort();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1] || pair[0].is_empty()) {
        return Err(Error::data(format!("the features of an ONNX model need different names: '{}'", twice[0])));
    }
    // Names inside the graph start with `margrave/`.
    if let Some(taken) =
        columns.iter().find(|name| ["label", "scores", "variable", "probabilities"].contains(&name.as_str()))
    {
        return Err(Error::data(format!("'{taken}' is the name of an output of an ONNX model: rename the feature")));
    }
    let infos = columns.iter().map(|name| value_info(name, DOUBLE, &[None, Some(1)])).collect();
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    graph.node("Concat", &names, "margrave/all", vec![int_attribute("axis", 1)]);
    Ok((infos, "margrave/all".to_owned()))
}

/// The bytes of the ONNX file of a model.
pub fn to_onnx_with(model: &Model, options: &OnnxOptions) -> Result<Vec<u8>> {
    let f = &model.expansion;
    let (k, d) = (f.outputs(), f.width());
    if f.len().saturating_mul(d.saturating_add(k)) > (1 << 27) {
        // Protocol Buffers files are limited to 2 GiB.
        return Err(Error::data("the model is too large for an ONNX file: keep the native format"));
    }
    let mut graph = Graph::default();
    let (inputs, mut x) = inputs(&mut graph, &options.columns, d)?;
    if let Some(scaling) = &model.scaling {
        let shift = graph.doubles("shift", &[1, d], &scaling.shift);
        let factor = graph.doubles("factor", &[1, d], &scaling.factor);
        let moved = graph.op("Sub", &[&x, &shift]);
        x = graph.op("Mul", &[&moved, &factor]);
    }
    let z = scores(&mut graph, model, &x)?;
    match model.task {
        Task::Regress => graph.output(&z, "variable", DOUBLE, &[None, Some(model.expansion.outputs())]),
        Task::Classify => {
            let code = winner(&mut graph, model, &z);
            let (names, kind) = labels(&mut graph, &model.labels);
            let label = graph.op("Gather", &[&names, &code]);
            graph.output(&label, "label", kind, &[None]);
            graph.output(&z, "scores", DOUBLE, &[None, Some(k)]);
            if let Some(p) = probabilities(&mut graph, model, &z, &code) {
                graph.output(&p, "probabilities", DOUBLE, &[None, Some(model.labels.len())]);
            }
        }
        Task::Novelty => {
            let zero = graph.scalar(0.0);
            let inside = graph.op("GreaterOrEqual", &[&z, &zero]);
            let code = graph.op_with("Cast", &[&inside], vec![int_attribute("to", INT64)]);
            let axes = graph.ints("axes", &[1], &[1]);
            let code = graph.op("Squeeze", &[&code, &axes]);
            let names = graph.ints("labels", &[2], &[-1, 1]);
            let label = graph.op("Gather", &[&names, &code]);
            graph.output(&label, "label", INT64, &[None]);
            graph.output(&z, "scores", DOUBLE, &[None, Some(1)]);
        }
    }
    let mut message = graph.nodes.into_iter().fold(Message::default(), |graph, node| graph.message(1, node));
    message = message.bytes(2, "margrave");
    message = graph.constants.into_iter().fold(message, |graph, constant| graph.message(5, constant));
    message = inputs.into_iter().fold(message, |graph, input| graph.message(11, input));
    message = graph.outputs.into_iter().fold(message, |graph, output| graph.message(12, output));
    let file = Message::default()
        .int(1, IR_VERSION)
        .bytes(2, "margrave")
        .bytes(3, env!("CARGO_PKG_VERSION"))
        .message(7, message)
        .message(8, Message::default().bytes(1, "").int(2, OPSET));
    let task = match model.task {
        Task::Classify => "classify",
        Task::Regress => "regress",
        Task::Novelty => "novelty",
    };
    let own = [("task", task.to_owned()), ("kernel", f.kernel().name().to_owned())];
    let loss = model.loss.as_ref().map(|loss| ("loss", loss.to_string()));
    let own = own.into_iter().chain(loss).map(|(key, value)| (key.to_owned(), value));
    let given = options.metadata.iter().cloned();
    let entry = |(key, value): (String, String)| Message::default().bytes(1, key).bytes(2, value);
    Ok(own.chain(given).map(entry).fold(file, |file, entry| file.message(14, entry)).finish())
}
