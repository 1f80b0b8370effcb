//! A heat map of numbers over two lists of values. Its colour ramp increases evenly in lightness.

use super::canvas::{Anchor, Canvas, Role};
use super::png::Image;
use super::raster::Raster;
use super::svg::Svg;

/// From dark blue to yellow; equal steps look equal, also in grey.
const RAMP: [(f64, f64, f64); 6] = [
    (68.0, 1.0, 84.0),
    (65.0, 68.0, 135.0),
    (42.0, 120.0, 142.0),
    (34.0, 168.0, 132.0),
    (122.0, 209.0, 81.0),
    (253.0, 231.0, 37.0),
];

/// Width of a letter of a tick in pixels.
const LETTER: f64 = 7.2;
/// Width of a letter of the title, which is bold.
const TITLE_LETTER: f64 = 9.6;
/// Height of a letter of a name that reads upwards.
const UPWARD_LETTER: f64 = 6.4;
const TOP: f64 = 56.0;
const BELOW: f64 = 62.0;
const RIGHT: f64 = 110.0;

/// A heat map.
#[derive(Debug, Clone)]
pub struct HeatMap {
    /// The title.
    pub title: String,
    /// Label of the columns, and their names from left to right.
    pub x: (String, Vec<String>),
    /// Label of the rows, and their names from bottom to top.
    pub y: (String, Vec<String>),
    /// A number for each row and column, rows from the bottom; `None` is left white.
    pub values: Vec<Vec<Option<f64>>>,
    /// Row and column of the cell to mark.
    pub mark: Option<(usize, usize)>,
    /// The numbers of the first and the last colour; `None`: the smallest and the largest value.
    pub range: Option<(f64, f64)>,
    /// Formats a number.
    pub format: fn(f64) -> String,
}

/// A colour of the ramp.
pub(super) fn rgb(share: f64) -> [u8; 3] {
    let share = if share.is_nan() { 0.0 } else { share };
    let at = share.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let low = (at.floor() as usize).min(RAMP.len() - 2);
    let t = at - low as f64;
    let mix = |a: f64, b: f64| (a + t * (b - a)).round() as u8;
    let (a, b) = (RAMP[low], RAMP[low + 1]);
    [mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2)]
}

fn colour(share: f64) -> String {
    let [r, g, b] = rgb(share);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Sizes in units of the picture.
struct MapLayout {
    columns: usize,
    rows: usize,
    /// Width of a cell.
    cell: f64,
    /// Height of a cell.
    tall: f64,
    /// Where the first column begins.
    left: f64,
    /// Whether names of columns read upwards.
    turned: bool,
    /// Height of the names of columns.
    names_below: f64,
    size: (f64, f64),
}

impl HeatMap {
    /// The picture.
    pub fn to_svg(&self) -> String {
        let (width, height) = self.layout().size;
        let mut svg = Svg::new(width, height, &self.title);
        self.draw(&mut svg);
        svg.finish()
    }

    /// The same picture as pixels, two per unit of the SVG.
    pub fn to_image(&self) -> Image {
        let (width, height) = self.layout().size;
        let mut raster = Raster::new(width, height, 2.0);
        self.draw(&mut raster);
        raster.finish()
    }

    fn layout(&self) -> MapLayout {
        let (columns, rows) = (self.x.1.len().max(1), self.y.1.len().max(1));
        let cell = (560.0 / columns as f64).clamp(26.0, 64.0);
        let tall = (420.0 / rows as f64).clamp(22.0, 48.0);
        let names = self.y.1.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
        let left = (44.0 + LETTER * names).max(90.0);
        // Names that would overlap read upwards.
        let longest = self.x.1.iter().map(|name| name.chars().count()).max().unwrap_or(1) as f64;
        let turned = 7.5 * longest + 6.0 > cell && columns > 1 || 7.5 * longest > cell + RIGHT;
        let names_below = if turned { UPWARD_LETTER * longest } else { 14.0 };
        let title = left + TITLE_LETTER * self.title.chars().count() as f64 + 10.0;
        let width = (left + cell * columns as f64 + RIGHT).max(title);
        let size = (width, TOP + tall * rows as f64 + BELOW - 14.0 + names_below);
        MapLayout { columns, rows, cell, tall, left, turned, names_below, size }
    }

    fn draw(&self, canvas: &mut dyn Canvas) {
        let MapLayout { columns, rows, cell, tall, left, turned, names_below, .. } = self.layout();
        canvas.text((left, 26.0), Anchor::Start, Role::Title, &self.title);
        let known = || self.values.iter().flatten().flatten().copied();
        let own = known().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        let (low, high) = self.range.unwrap_or(own);
        let share = |v: f64| if high > low { (v - low) / (high - low) } else { 1.0 };
        let bottom = TOP + tall * rows as f64;
        for (row, line) in self.values.iter().enumerate() {
            for (column, value) in line.iter().enumerate() {
                let at = (left + cell * column as f64, bottom - tall * (row + 1) as f64);
                if let Some(v) = value {
                    canvas.fill(at, (cell, tall), &colour(share(*v)));
                    let text = (self.format)(*v);
                    if cell >= 8.0 * text.len() as f64 {
                        let ink = if share(*v) > 0.6 { "#111" } else { "#fff" };
                        canvas.ink((at.0 + cell / 2.0, at.1 + tall / 2.0 + 4.0), ink, &text);
                    }
                }
            }
        }
        if let Some((row, column)) = self.mark {
            let at = (left + cell * column as f64, bottom - tall * (row + 1) as f64);
            canvas.outline(at, (cell, tall));
        }
        canvas.frame((left, TOP), (cell * columns as f64, tall * rows as f64));
        for (column, name) in self.x.1.iter().enumerate() {
            let x = left + cell * (column as f64 + 0.5);
            let middle = 0.5 * UPWARD_LETTER * name.chars().count() as f64;
            match turned {
                true => canvas.turned_text((x + 4.0, bottom + 8.0 + middle), Role::Tick, name),
                false => canvas.text((x, bottom + 18.0), Anchor::Middle, Role::Tick, name),
            }
        }
        for (row, name) in self.y.1.iter().enumerate() {
            canvas.text((left - 8.0, bottom - tall * (row as f64 + 0.5) + 4.0), Anchor::End, Role::Tick, name);
        }
        canvas.text(
            (left + cell * columns as f64 / 2.0, bottom + 30.0 + names_below),
            Anchor::Middle,
            Role::Label,
            &self.x.0,
        );
        canvas.turned_text((18.0, TOP + tall * rows as f64 / 2.0), Role::Label, &self.y.0);
        self.legend(canvas, left + cell * columns as f64 + 18.0, bottom, low, high);
    }

    fn legend(&self, canvas: &mut dyn Canvas, x: f64, bottom: f64, low: f64, high: f64) {
        if !(high >= low) {
            return;
        }
        let steps = 40;
        let tall = (bottom - TOP) / f64::from(steps);
        for step in 0..steps {
            let at = (x, bottom - tall * f64::from(step + 1));
            canvas.fill(at, (16.0, tall + 0.5), &colour(f64::from(step) / f64::from(steps - 1)));
        }
        canvas.frame((x, TOP), (16.0, bottom - TOP));
        canvas.text((x + 22.0, bottom), Anchor::Start, Role::Tick, &(self.format)(low));
        canvas.text((x + 22.0, TOP + 10.0), Anchor::Start, Role::Tick, &(self.format)(high));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_shown_whole() {
        let names: Vec<String> = (0..9).map(|i| format!("a class with a long name {i}")).collect();
        let map = HeatMap {
            title: "t".into(),
            x: ("predicted".into(), names.clone()),
            y: ("true".into(), names.clone()),
            values: vec![vec![Some(0.5); 9]; 9],
            mark: None,
            range: None,
            format: |v| format!("{v}"),
        };
        let svg = map.to_svg();
        assert!(names.iter().all(|name| svg.matches(name.as_str()).count() == 2), "{svg}");
        assert_eq!(svg.matches("rotate(-90)").count(), 9 + 1);
    }

    #[test]
    fn maps_are_well_formed_and_colours_rise() {
        let map = HeatMap {
            title: "a < b".into(),
            x: ("C".into(), vec!["1".into(), "2".into()]),
            y: ("γ".into(), vec!["0.1".into()]),
            values: vec![vec![Some(0.5), None]],
            mark: Some((0, 0)),
            range: None,
            format: |v| format!("{v}"),
        };
        let svg = map.to_svg();
        let image = map.to_image();
        assert!(image.to_png().is_ok());
        // The first cell has the colour of the only value, the second is white; the layout is that of the SVG.
        let layout = map.layout();
        let inside = |column: usize| {
            let x = layout.left + layout.cell * (column as f64 + 0.1);
            image.get((2.0 * x) as usize, (2.0 * (TOP + 0.2 * layout.tall)) as usize)
        };
        assert_eq!((inside(0), inside(1)), (rgb(1.0), [255; 3]));
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        let light = |c: &str| (1..7).step_by(2).filter_map(|i| u32::from_str_radix(&c[i..i + 2], 16).ok()).sum::<u32>();
        let steps: Vec<u32> = (0..=10).map(|i| light(&colour(f64::from(i) / 10.0))).collect();
        assert!(steps.first() < steps.last(), "{steps:?}");
    }
}
