//! Writers of LIBSVM text and CSV. Numbers are written with the fewest digits that read back to the same bits.

use std::io::{self, Write};

use margrave_core::data::{Dataset, Storage, Targets};

/// Writes `data` as LIBSVM text; zeros of dense rows are omitted. Data without targets gets the label 0.
///
/// Text labels must not contain blanks, `#` or `:`, which LIBSVM text cannot represent.
pub fn write_libsvm(data: &Dataset, out: &mut dyn Write) -> io::Result<()> {
    let single = is_single(data);
    for row in 0..data.len() {
        match &data.targets {
            Targets::Real(values) => write!(out, "{}", values[row])?,
            Targets::Text(values) => {
                let label = &values[row];
                if label.is_empty() || label.contains(|c: char| c.is_whitespace() || c == '#' || c == ':') {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!("the label {label:?} cannot be written as LIBSVM text: rename it, or write CSV"),
                    ));
                }
                out.write_all(label.as_bytes())?;
            }
            Targets::Several { .. } => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "several targets cannot be written as LIBSVM text: write CSV",
                ));
            }
            Targets::None => out.write_all(b"0")?,
        }
        let mut result = Ok(());
        data.points.visit(row, |column, value| {
            if value != 0.0 && result.is_ok() {
                result = write!(out, " {}:", column + 1).and_then(|()| number(out, value, single));
            }
        });
        result?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes `data` as comma-separated text, targets last (column `target`; several as `target 0`, `target 1`, …), weights
/// before them (column `weight`). A header is written if the features have names or there are weights.
pub fn write_csv(data: &Dataset, out: &mut dyn Write) -> io::Result<()> {
    let single = is_single(data);
    let d = data.points.dims();
    if data.names.is_some() || data.weights.is_some() {
        let names = (0..d).map(|k| match &data.names {
            Some(names) => names[k].clone(),
            None => format!("x{}", k + 1),
        });
        let targets: Vec<String> = match &data.targets {
            Targets::None => vec![],
            Targets::Real(_) | Targets::Text(_) => vec!["target".to_owned()],
            Targets::Several { outputs, .. } => (0..*outputs).map(|at| format!("target {at}")).collect(),
        };
        let extra = data.weights.is_some().then(|| "weight".to_owned()).into_iter().chain(targets);
        for (at, name) in names.chain(extra).enumerate() {
            separator(out, at)?;
            text(out, &name)?;
        }
        out.write_all(b"\n")?;
    }
    for row in 0..data.len() {
        let mut next = 0;
        let mut result = Ok(());
        data.points.visit(row, |column, value| {
            if result.is_ok() {
                result = zeros(out, next, column)
                    .and_then(|()| separator(out, column))
                    .and_then(|()| number(out, value, single));
                next = column + 1;
            }
        });
        result?;
        zeros(out, next, d)?;
        let mut at = d;
        if let Some(weights) = &data.weights {
            separator(out, at)?;
            write!(out, "{}", weights[row])?;
            at += 1;
        }
        match &data.targets {
            Targets::Real(values) => {
                separator(out, at)?;
                write!(out, "{}", values[row])?;
            }
            Targets::Text(values) => {
                separator(out, at)?;
                text(out, &values[row])?;
            }
            Targets::Several { outputs, values } => {
                for value in &values[row * outputs..(row + 1) * outputs] {
                    separator(out, at)?;
                    write!(out, "{value}")?;
                    at += 1;
                }
            }
            Targets::None => {}
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn is_single(data: &Dataset) -> bool {
    matches!(data.points.storage(), Storage::DenseF32(_) | Storage::SparseF32(_))
}

fn number(out: &mut dyn Write, value: f64, single: bool) -> io::Result<()> {
    // Single-precision values need fewer digits.
    if single { write!(out, "{}", value as f32) } else { write!(out, "{value}") }
}

fn separator(out: &mut dyn Write, column: usize) -> io::Result<()> {
    if column == 0 { Ok(()) } else { out.write_all(b",") }
}

fn zeros(out: &mut dyn Write, from: usize, to: usize) -> io::Result<()> {
    (from..to).try_for_each(|column| separator(out, column).and_then(|()| out.write_all(b"0")))
}

fn text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    let plain =
        !text.is_empty() && text.trim() == text && !text.contains(|c: char| c.is_control() || ",;|\"".contains(c));
    if plain { out.write_all(text.as_bytes()) } else { write!(out, "\"{}\"", text.replace('"', "\"\"")) }
}
