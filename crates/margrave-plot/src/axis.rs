//! Scales, limits and ticks of axes.

/// How numbers become positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    Linear,
    /// By powers of ten; only numbers > 0 are shown.
    Log,
}

/// An axis: its label, scale and limits.
#[derive(Debug, Clone)]
pub struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    range: Option<(f64, f64)>,
}

/// A line across the plot, with a label or without.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: Option<String>,
}

/// The spans of both axes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) x: (f64, f64),
    pub(super) y: (f64, f64),
    pub(super) x_scale: Scale,
    pub(super) y_scale: Scale,
}

impl Axis {
    /// An axis that fits its data.
    pub fn new(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale, range: None }
    }

    /// The same from `low` to `high`; what lies outside is not drawn.
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.range = (self.scale.takes(low) && self.scale.takes(high) && low < high).then_some((low, high));
        self
    }

    /// The ends of the axis: those set, or the range of all values with a margin.
    pub(super) fn span(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        if let Some(range) = self.range {
            return range;
        }
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.filter(|v| self.scale.takes(*v)) {
            (low, high) = (low.min(v), high.max(v));
        }
        match self.scale {
            _ if low > high => (if self.scale == Scale::Log { 0.1 } else { 0.0 }, 1.0),
            Scale::Linear => {
                // Halve first: the difference of the ends may overflow.
                let air = if low == high { low.abs().max(1.0) * 0.05 } else { (high * 0.5 - low * 0.5) * 0.08 };
                ((low - air).max(f64::MIN), (high + air).min(f64::MAX))
            }
            Scale::Log => {
                let decades = (high.log10() - low.log10()).max(0.2);
                let air = 10f64.powf(0.04 * decades);
                ((low / air).max(f64::MIN_POSITIVE), (high * air).min(f64::MAX))
            }
        }
    }
}

impl Scale {
    fn takes(self, v: f64) -> bool {
        v.is_finite() && (self == Scale::Linear || v >= f64::MIN_POSITIVE)
    }

    /// The position of a value between the ends, from 0 to 1.
    fn along(self, (low, high): (f64, f64), v: f64) -> f64 {
        match self {
            Scale::Linear => (v * 0.5 - low * 0.5) / (high * 0.5 - low * 0.5),
            Scale::Log => (v.log10() - low.log10()) / (high.log10() - low.log10()),
        }
    }

    /// About `wanted` labelled ticks within the span.
    pub(super) fn ticks(self, span: (f64, f64), wanted: usize) -> Vec<Tick> {
        match self {
            Scale::Linear => linear(span, wanted),
            Scale::Log => {
                let ticks = log(span, wanted);
                // A short range may contain no power of ten and no 2 or 5 times one.
                if ticks.iter().filter(|t| t.label.is_some()).count() < 2 { linear(span, wanted) } else { ticks }
            }
        }
    }
}

impl Frame {
    pub(super) fn along_x(&self, x: f64) -> f64 {
        self.x_scale.along(self.x, x)
    }

    pub(super) fn along_y(&self, y: f64) -> f64 {
        self.y_scale.along(self.y, y)
    }

    /// Whether the point lies within both spans.
    pub(super) fn shows(&self, x: f64, y: f64) -> bool {
        let within = |scale: Scale, span: (f64, f64), v: f64| scale.takes(v) && v >= span.0 && v <= span.1;
        within(self.x_scale, self.x, x) && within(self.y_scale, self.y, y)
    }
}

/// Steps of 1, 2 or 5 times a power of ten.
fn linear((low, high): (f64, f64), wanted: usize) -> Vec<Tick> {
    let raw = (high / wanted as f64) - (low / wanted as f64);
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * power).find(|s| *s >= raw).unwrap_or(10.0 * power);
    let (first, last) = ((low / step).ceil(), (high / step).floor());
    if !(last - first).is_finite() || last - first > 1000.0 {
        return Vec::new();
    }
    (0..=(last - first) as i64)
        .map(|i| {
            let at = (first + i as f64) * step;
            Tick { at, label: Some(plain(at, step)) }
        })
        .collect()
}

/// A multiple of `step`, without the digits that rounding added.
fn plain(value: f64, step: f64) -> String {
    let places = (-step.log10().floor()).clamp(0.0, 300.0) as usize;
    if places > 6 || value.abs() >= 1e6 {
        return if value == 0.0 { "0".into() } else { crate::number(value, 4) };
    }
    // Turns −0 into 0.
    format!("{:.places$}", value + 0.0)
}

/// Powers of ten, thinned out if there are many; plain numbers, 2 and 5 times them too, if there are few.
fn log((low, high): (f64, f64), wanted: usize) -> Vec<Tick> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = high.log10() - low.log10();
    let every = ((decades / wanted as f64).ceil() as i32).max(1);
    let mut ticks = Vec::new();
    for exponent in first..=last {
        for digit in 1..10 {
            let at = f64::from(digit) * 10f64.powi(exponent);
            if !(at >= low && at <= high) {
                continue;
            }
            let label = match digit {
                1 | 2 | 5 if decades < 2.0 => Some(crate::number(at, 3)),
                1 if exponent.rem_euclid(every) == 0 => Some(format!("10{}", superscript(exponent))),
                _ => None,
            };
            if label.is_some() || every == 1 && decades <= 6.0 || digit == 1 {
                ticks.push(Tick { at, label });
            }
        }
    }
    ticks
}

fn superscript(exponent: i32) -> String {
    let raised = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32('⁰' as u32 + digit.to_digit(10).unwrap_or(0)).unwrap_or('⁰'),
    };
    exponent.to_string().chars().map(raised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().filter_map(|t| t.label.as_deref()).collect()
    }

    #[test]
    fn ticks_fall_on_round_numbers() {
        assert_eq!(labels(&linear((0.0, 1.0), 5)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&linear((-7.0, 12.0), 5)), ["-5", "0", "5", "10"]);
        assert_eq!(labels(&log((1e-3, 1e2), 8)), ["10⁻³", "10⁻²", "10⁻¹", "10⁰", "10¹", "10²"]);
        assert_eq!(labels(&log((0.9, 11.0), 8)), ["1", "2", "5", "10"]);
        assert_eq!(labels(&Scale::Log.ticks((2100.0, 2900.0), 4)), ["2200", "2400", "2600", "2800"]);
        // Twenty decades: every third is enough.
        assert_eq!(labels(&log((1e-10, 1e10), 8)), ["10⁻⁹", "10⁻⁶", "10⁻³", "10⁰", "10³", "10⁶", "10⁹"]);
        assert_eq!(superscript(-4567890), "⁻⁴⁵⁶⁷⁸⁹⁰");
    }

    #[test]
    fn spans_hold_the_data() {
        let values = [1.0, 10.0, 1000.0];
        let (low, high) = Axis::new("", Scale::Log).span(values.into_iter());
        assert!(low > 0.7 && low < 1.0 && high > 1000.0 && high < 1500.0, "{low} {high}");
        let (low, high) = Axis::new("", Scale::Linear).span(values.into_iter());
        assert!(low < 1.0 && low > -50.0 && high > 1000.0 && high < 1050.0, "{low} {high}");
        assert_eq!(Axis::new("", Scale::Log).span([-1.0, 0.0].into_iter()), (0.1, 1.0));
    }

    #[test]
    fn positions_go_from_end_to_end() {
        let frame = Frame { x: (1.0, 100.0), y: (-1.0, 1.0), x_scale: Scale::Log, y_scale: Scale::Linear };
        assert!((frame.along_x(10.0) - 0.5).abs() < 1e-12 && (frame.along_y(0.5) - 0.75).abs() < 1e-12);
        assert!(frame.shows(1.0, 1.0) && !frame.shows(0.0, 0.0) && !frame.shows(10.0, 2.0));
    }
}
