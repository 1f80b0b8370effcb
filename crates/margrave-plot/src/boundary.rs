//! What a machine says over a plane of two features: regions, the boundary, margins, samples, support vectors.

use super::axis::{Axis, Scale};
use super::png::Image;
use super::svg::Svg;
use super::{PALETTE, heat};

const LEFT: f64 = 70.0;
const TOP: f64 = 64.0;
const BELOW: f64 = 52.0;
const RIGHT: f64 = 22.0;

/// One sample.
#[derive(Debug, Clone, Copy)]
pub struct Dot {
    /// Where.
    pub at: (f64, f64),
    /// Its class: a colour. `None` is grey.
    pub class: Option<usize>,
    /// Whether it is a support vector: it gets a ring.
    pub support: bool,
}

/// What is known at each point of the plane.
#[derive(Debug, Clone)]
pub enum Field {
    /// A score, with the boundary at 0 and margins at ±1; the classes below and above.
    Score(Vec<f64>, [usize; 2]),
    /// The winning class.
    Class(Vec<usize>),
    /// A number, in colours.
    Value(Vec<f64>),
}

/// The picture.
#[derive(Debug, Clone)]
pub struct Plane {
    /// Above it.
    pub title: String,
    /// Names of the axes.
    pub names: (String, String),
    /// What the horizontal axis spans.
    pub x: (f64, f64),
    /// What the vertical axis spans.
    pub y: (f64, f64),
    /// Columns and rows of the field.
    pub size: (usize, usize),
    /// From the bottom left, row by row.
    pub field: Field,
    /// The samples.
    pub dots: Vec<Dot>,
    /// Names of the classes, for the legend.
    pub classes: Vec<String>,
    /// What a ring says, for the legend.
    pub ring: String,
}

/// `share` of a palette colour on white.
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
                // Deeper where the machine is surer, up to the margin.
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
        let (wide, tall) = (620.0, 460.0);
        let (width, height) = (LEFT + wide + RIGHT, TOP + tall + BELOW);
        let mut svg = Svg::new(width, height, &self.title);
        svg.text((LEFT, 24.0), "start", "title", &self.title);
        let (w, h) = self.size;
        let (cell, bottom) = ((wide / w as f64, tall / h as f64), TOP + tall);
        let range = self.range();
        for row in 0..h {
            let mut from = 0;
            while from < w {
                let colour = self.colour(row * w + from, range);
                let mut to = from + 1;
                while to < w && self.colour(row * w + to, range) == colour {
                    to += 1;
                }
                let at = (LEFT + cell.0 * from as f64, bottom - cell.1 * (row + 1) as f64);
                // A hair wider: no white lines between neighbours.
                svg.fill(at, (cell.0 * (to - from) as f64 + 0.4, cell.1 + 0.4), &hex(colour));
                from = to;
            }
        }
        let there = |(x, y): (f64, f64)| (LEFT + cell.0 * x, bottom - cell.1 * y);
        for (level, class) in [(-1.0, "margin"), (1.0, "margin"), (0.0, "boundary")] {
            let pieces: Vec<[(f64, f64); 2]> =
                self.contour(level).iter().map(|[a, b]| [there(*a), there(*b)]).collect();
            svg.pieces(&pieces, class);
        }
        let place = |(x, y): (f64, f64)| {
            (
                LEFT + wide * (x - self.x.0) / (self.x.1 - self.x.0),
                bottom - tall * (y - self.y.0) / (self.y.1 - self.y.0),
            )
        };
        for dot in &self.dots {
            let colour = dot.class.map_or("#555".to_owned(), |class| PALETTE[class % PALETTE.len()].to_owned());
            svg.sample(place(dot.at), &colour, dot.support);
        }
        self.axes(&mut svg, wide, tall, bottom);
        self.legend(&mut svg);
        svg.finish()
    }

    fn axes(&self, svg: &mut Svg, wide: f64, tall: f64, bottom: f64) {
        svg.rect((LEFT, TOP), (wide, tall), "frame");
        let along = |span: (f64, f64), v: f64| (v - span.0) / (span.1 - span.0);
        for tick in Scale::Linear.ticks(self.x, 7) {
            if let Some(label) = &tick.label {
                svg.text((LEFT + wide * along(self.x, tick.at), bottom + 17.0), "middle", "tick", label);
            }
        }
        for tick in Scale::Linear.ticks(self.y, 6) {
            if let Some(label) = &tick.label {
                svg.text((LEFT - 7.0, bottom - tall * along(self.y, tick.at) + 4.0), "end", "tick", label);
            }
        }
        let (x, y) = (Axis::new(&self.names.0, Scale::Linear), Axis::new(&self.names.1, Scale::Linear));
        svg.text((LEFT + wide / 2.0, bottom + 40.0), "middle", "label", &x.label);
        svg.turned_text((18.0, TOP + tall / 2.0), "label", &y.label);
    }

    fn legend(&self, svg: &mut Svg) {
        let mut at = LEFT;
        let mut put = |svg: &mut Svg, colour: &str, ring: bool, name: &str| {
            svg.sample((at + 6.0, 44.0), colour, ring);
            svg.text((at + 16.0, 48.0), "start", "key", name);
            at += 34.0 + 6.6 * name.chars().count() as f64;
        };
        for (class, name) in self.classes.iter().enumerate().take(8) {
            put(svg, PALETTE[class % PALETTE.len()], false, name);
        }
        if self.dots.iter().any(|dot| dot.support) {
            put(svg, "#fff", true, &self.ring);
        }
    }

    /// As pixels: the same without words.
    pub fn to_image(&self) -> Image {
        let (wide, tall) = (800usize, 600usize);
        let mut image = Image::new(wide, tall);
        let (w, h) = self.size;
        let range = self.range();
        for y in 0..tall {
            for x in 0..wide {
                let (column, row) = (x * w / wide, (tall - 1 - y) * h / tall);
                image.set(x as i64, y as i64, self.colour(row * w + column, range));
            }
        }
        let there = |(x, y): (f64, f64)| (x / w as f64 * wide as f64, (1.0 - y / h as f64) * tall as f64);
        for (level, ink, thick) in [(-1.0, [120; 3], 0.6), (1.0, [120; 3], 0.6), (0.0, [20; 3], 1.2)] {
            for [a, b] in self.contour(level) {
                let (a, b) = (there(a), there(b));
                let steps = ((a.0 - b.0).hypot(a.1 - b.1) * 2.0).ceil().max(1.0) as usize;
                for step in 0..=steps {
                    let t = step as f64 / steps as f64;
                    image.disc((a.0 + t * (b.0 - a.0), a.1 + t * (b.1 - a.1)), thick, ink, None);
                }
            }
        }
        for dot in &self.dots {
            let at = (
                (dot.at.0 - self.x.0) / (self.x.1 - self.x.0) * wide as f64,
                (1.0 - (dot.at.1 - self.y.0) / (self.y.1 - self.y.0)) * tall as f64,
            );
            let fill = dot.class.map_or([85; 3], |class| tint(class, 1.0));
            image.disc(at, 3.5, fill, dot.support.then_some([0; 3]));
        }
        image
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
            assert!(plane.to_image().to_png().is_ok());
        }
    }
}
