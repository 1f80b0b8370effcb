//! The predictions of a model over two features: regions, decision boundary, margins, samples, support vectors.

use super::axis::Scale;
use super::canvas::{Anchor, Canvas, Role};
use super::png::Image;
use super::raster::Raster;
use super::svg::Svg;
use super::{PALETTE, heat};

const LEFT: f64 = 70.0;
const TOP: f64 = 64.0;
const BELOW: f64 = 52.0;
const RIGHT: f64 = 22.0;
const WIDE: f64 = 620.0;
const TALL: f64 = 460.0;
const BOTTOM: f64 = TOP + TALL;

/// One sample.
#[derive(Debug, Clone, Copy)]
pub struct Dot {
    /// Its position.
    pub at: (f64, f64),
    /// Its class: a colour. `None` is grey.
    pub class: Option<usize>,
    /// Whether it is a support vector: it gets a ring.
    pub support: bool,
}

/// What the model predicts at each point of the plane.
#[derive(Debug, Clone)]
pub enum Field {
    /// A score, with the boundary at 0 and margins at ±1; the classes below and above.
    Score(Vec<f64>, [usize; 2]),
    /// The predicted class.
    Class(Vec<usize>),
    /// A number, shown as a colour.
    Value(Vec<f64>),
}

/// The picture.
#[derive(Debug, Clone)]
pub struct Plane {
    /// The title.
    pub title: String,
    /// Names of the axes.
    pub names: (String, String),
    /// Ends of the horizontal axis.
    pub x: (f64, f64),
    /// Ends of the vertical axis.
    pub y: (f64, f64),
    /// Columns and rows of the field.
    pub size: (usize, usize),
    /// The predictions, row by row from the bottom left.
    pub field: Field,
    /// The samples.
    pub dots: Vec<Dot>,
    /// Names of the classes, for the legend.
    pub classes: Vec<String>,
    /// What a ring means, for the legend.
    pub ring: String,
}

/// A colour of the palette, mixed with white.
fn tint(class: usize, share: f64) -> [u8; 3] {
    let text = PALETTE[class % PALETTE.len()];
    let channel = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap_or(0);
    [1, 3, 5].map(|at| (255.0 - share * (255.0 - f64::from(channel(at)))).round() as u8)
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

impl Plane {
    fn colour(&self, at: usize, range: (f64, f64)) -> [u8; 3] {
        match &self.field {
            Field::Score(z, classes) => {
                let side = classes[usize::from(z[at] > 0.0)];
                // The colour deepens with the score, up to the margin.
                tint(side, 0.10 + 0.22 * z[at].abs().min(1.0))
            }
            Field::Class(classes) => tint(classes[at], 0.25),
            Field::Value(values) => {
                let share = if range.1 > range.0 { (values[at] - range.0) / (range.1 - range.0) } else { 0.5 };
                heat::rgb(share)
            }
        }
    }

    fn range(&self) -> (f64, f64) {
        match &self.field {
            Field::Value(v) => v.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v))),
            _ => (0.0, 1.0),
        }
    }

    /// Pieces of the line where the score is `level`, in cells from the bottom left: marching squares.
    fn contour(&self, level: f64) -> Vec<[(f64, f64); 2]> {
        let Field::Score(z, _) = &self.field else { return vec![] };
        let (w, h) = self.size;
        let mut out = Vec::new();
        for row in 0..h.saturating_sub(1) {
            for column in 0..w.saturating_sub(1) {
                let value = |dx: usize, dy: usize| z[(row + dy) * w + column + dx] - level;
                let corners = [(0, 0), (1, 0), (1, 1), (0, 1)];
                let mut cuts = Vec::new();
                for edge in 0..4 {
                    let (a, b) = (corners[edge], corners[(edge + 1) % 4]);
                    let (va, vb) = (value(a.0, a.1), value(b.0, b.1));
                    if (va > 0.0) != (vb > 0.0) {
                        let t = va / (va - vb);
                        let mix = |p: usize, q: usize| p as f64 + t * (q as f64 - p as f64);
                        cuts.push((column as f64 + 0.5 + mix(a.0, b.0), row as f64 + 0.5 + mix(a.1, b.1)));
                    }
                }
                cuts.chunks_exact(2).for_each(|pair| out.push([pair[0], pair[1]]));
            }
        }
        out
    }

    /// As SVG, with axes and a legend.
    pub fn to_svg(&self) -> String {
        let mut svg = Svg::new(LEFT + WIDE + RIGHT, TOP + TALL + BELOW, &self.title);
        let (w, h) = self.size;
        let cell = (WIDE / w as f64, TALL / h as f64);
        let range = self.range();
        for row in 0..h {
            let mut from = 0;
            while from < w {
                let colour = self.colour(row * w + from, range);
                let mut to = from + 1;
                while to < w && self.colour(row * w + to, range) == colour {
                    to += 1;
                }
                let at = (LEFT + cell.0 * from as f64, BOTTOM - cell.1 * (row + 1) as f64);
                // Slightly wider, so that no white lines show between neighbours.
                svg.fill(at, (cell.0 * (to - from) as f64 + 0.4, cell.1 + 0.4), &hex(colour));
                from = to;
            }
        }
        for (level, class) in [(-1.0, "margin"), (1.0, "margin"), (0.0, "boundary")] {
            svg.pieces(&self.pieces(level), class);
        }
        self.furnish(&mut svg);
        svg.finish()
    }

    /// The same picture as pixels, two per unit of the SVG.
    pub fn to_image(&self) -> Image {
        let mut raster = Raster::new(LEFT + WIDE + RIGHT, TOP + TALL + BELOW, 2.0);
        let (w, h) = self.size;
        let range = self.range();
        raster.area((LEFT, TOP), (WIDE, TALL), |x, y| {
            let (column, row) = ((x * w as f64) as usize, ((1.0 - y) * h as f64) as usize);
            self.colour(row.min(h - 1) * w + column.min(w - 1), range)
        });
        for (level, thick, ink, opacity) in
            [(-1.0, 1.1, [0x55; 3], 0.8), (1.0, 1.1, [0x55; 3], 0.8), (0.0, 2.0, [0x11; 3], 1.0)]
        {
            raster.strokes(&self.pieces(level), thick, ink, opacity);
        }
        self.furnish(&mut raster);
        raster.finish()
    }

    /// The contour in the coordinates of the picture.
    fn pieces(&self, level: f64) -> Vec<[(f64, f64); 2]> {
        let (w, h) = self.size;
        let there = |(x, y): (f64, f64)| (LEFT + WIDE / w as f64 * x, BOTTOM - TALL / h as f64 * y);
        self.contour(level).iter().map(|[a, b]| [there(*a), there(*b)]).collect()
    }

    /// Samples, title, axes and legend.
    fn furnish(&self, canvas: &mut dyn Canvas) {
        let place = |(x, y): (f64, f64)| {
            (
                LEFT + WIDE * (x - self.x.0) / (self.x.1 - self.x.0),
                BOTTOM - TALL * (y - self.y.0) / (self.y.1 - self.y.0),
            )
        };
        for dot in &self.dots {
            let colour = dot.class.map_or("#555", |class| PALETTE[class % PALETTE.len()]);
            canvas.sample(place(dot.at), colour, dot.support);
        }
        canvas.text((LEFT, 24.0), Anchor::Start, Role::Title, &self.title);
        self.axes(canvas);
        self.legend(canvas);
    }

    fn axes(&self, canvas: &mut dyn Canvas) {
        canvas.frame((LEFT, TOP), (WIDE, TALL));
        let along = |span: (f64, f64), v: f64| (v - span.0) / (span.1 - span.0);
        for tick in Scale::Linear.ticks(self.x, 7) {
            if let Some(label) = &tick.label {
                let at = (LEFT + WIDE * along(self.x, tick.at), BOTTOM + 17.0);
                canvas.text(at, Anchor::Middle, Role::Tick, label);
            }
        }
        for tick in Scale::Linear.ticks(self.y, 6) {
            if let Some(label) = &tick.label {
                let at = (LEFT - 7.0, BOTTOM - TALL * along(self.y, tick.at) + 4.0);
                canvas.text(at, Anchor::End, Role::Tick, label);
            }
        }
        canvas.text((LEFT + WIDE / 2.0, BOTTOM + 40.0), Anchor::Middle, Role::Label, &self.names.0);
        canvas.turned_text((18.0, TOP + TALL / 2.0), Role::Label, &self.names.1);
    }

    fn legend(&self, canvas: &mut dyn Canvas) {
        let mut at = LEFT;
        let mut put = |colour: &str, ring: bool, name: &str| {
            canvas.sample((at + 6.0, 44.0), colour, ring);
            canvas.text((at + 16.0, 48.0), Anchor::Start, Role::Key, name);
            at += 34.0 + 6.6 * name.chars().count() as f64;
        };
        for (class, name) in self.classes.iter().enumerate().take(8) {
            put(PALETTE[class % PALETTE.len()], false, name);
        }
        if self.dots.iter().any(|dot| dot.support) {
            put("#fff", true, &self.ring);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(field: Field) -> Plane {
        Plane {
            title: "t".into(),
            names: ("a".into(), "b<c".into()),
            x: (0.0, 3.0),
            y: (0.0, 2.0),
            size: (3, 2),
            field,
            dots: vec![Dot { at: (1.0, 1.0), class: Some(1), support: true }],
            classes: vec!["no".into(), "yes".into()],
            ring: "support vector".into(),
        }
    }

    #[test]
    fn the_boundary_lies_where_the_score_changes_sign() {
        // z = column − 1.5: the line x = 2 in cells, where cell centres are at ½, 1½, 2½.
        let z = vec![-1.5, -0.5, 0.5, -1.5, -0.5, 0.5];
        let lines = plane(Field::Score(z, [0, 1])).contour(0.0);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].iter().all(|p| (p.0 - 2.0).abs() < 1e-12), "{lines:?}");
    }

    #[test]
    fn every_field_can_be_drawn() {
        for field in [
            Field::Score(vec![-1.5, -0.5, 0.5, -1.5, -0.5, 0.5], [0, 1]),
            Field::Class(vec![0, 1, 2, 0, 1, 2]),
            Field::Value(vec![0.0; 6]),
        ] {
            let plane = plane(field);
            let svg = plane.to_svg();
            assert!(svg.contains("b&lt;c") && svg.ends_with("</svg>\n"));
            let image = plane.to_image();
            assert!(image.to_png().is_ok());
            let dark = |x: std::ops::Range<usize>, y: std::ops::Range<usize>| {
                y.flat_map(|y| x.clone().map(move |x| (x, y))).filter(|&(x, y)| image.get(x, y)[0] < 0x60).count()
            };
            let unit = |v: f64| (2.0 * v) as usize;
            // The title, a name below, the other on its side, the first key and the numbers left of the frame.
            let places = [
                ((LEFT, 10.0), (12.0, 18.0)),
                ((LEFT + WIDE / 2.0 - 8.0, BOTTOM + 26.0), (16.0, 20.0)),
                ((4.0, TOP + TALL / 2.0 - 16.0), (20.0, 32.0)),
                ((LEFT + 15.0, 36.0), (20.0, 16.0)),
                ((LEFT - 32.0, BOTTOM - 8.0), (26.0, 14.0)),
            ];
            for ((x, y), (width, height)) in places {
                assert!(dark(unit(x)..unit(x + width), unit(y)..unit(y + height)) > 10, "no text at {x}, {y}");
            }
            // And none between the axis and its name.
            assert_eq!(dark(unit(24.0)..unit(LEFT - 40.0), unit(TOP)..unit(BOTTOM)), 0);
        }
    }
}
