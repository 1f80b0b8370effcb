//! Charts as SVG: linear and logarithmic axes, lines, dots, marks and a legend; heat maps; and decision boundaries over
//! two features, also as PNG.
//!
//! A [`Figure`] is a column of [`Panel`]s under one title. The colours are distinct for all common kinds of colour
//! blindness. Lines also differ in their dashes, so that charts can be read in black and white.

mod axis;
mod boundary;
mod canvas;
mod heat;
mod number;
mod png;
mod raster;
mod svg;
mod tile;

pub use axis::{Axis, Scale};
pub use boundary::{Dot, Field, Plane};
pub use heat::HeatMap;
pub use number::number;
pub use png::Image;
pub use tile::tile;

use self::axis::Frame;
use self::svg::Svg;

/// The colours of Okabe and Ito without the yellow, which is hard to see on white.
const PALETTE: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];

const WIDTH: f64 = 720.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 18.0;
const TITLE: f64 = 34.0;
const LEGEND: f64 = 24.0;
const BELOW: f64 = 46.0;

/// One line, or one set of dots.
#[derive(Debug, Clone)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    line: bool,
    dots: bool,
    hollow: bool,
    colour: Option<usize>,
    dash: Option<usize>,
}

impl Series {
    /// A line through the points, in their order; a point that is not finite interrupts it.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, line: true, dots: false, hollow: false, colour: None, dash: None }
    }

    /// A set of dots.
    pub fn dots(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, line: false, dots: true, hollow: false, colour: None, dash: None }
    }

    /// The same with a dot at every point.
    pub fn with_dots(mut self) -> Self {
        self.dots = true;
        self
    }

    /// The same with rings for dots.
    pub fn hollow(mut self) -> Self {
        self.hollow = true;
        self
    }

    /// The same in this colour of the palette, and for lines with these dashes (0: none). By default both follow from
    /// the position in the list.
    pub fn style(mut self, colour: usize, dash: usize) -> Self {
        (self.colour, self.dash) = (Some(colour), Some(dash));
        self
    }
}

/// A vertical line with a note.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Its position.
    pub x: f64,
    /// Its text.
    pub note: String,
}

/// One pair of axes and what is drawn on them.
#[derive(Debug, Clone)]
pub struct Panel {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Height of the plot area in pixels.
    pub height: f64,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Vertical lines.
    pub marks: Vec<Mark>,
}

impl Panel {
    /// Panels with a single series need no legend: the axis names it.
    fn head(&self) -> f64 {
        if self.series.len() > 1 || !self.marks.is_empty() { LEGEND } else { 10.0 }
    }

    fn frame(&self) -> Frame {
        let points = || self.series.iter().flat_map(|s| s.points.iter());
        let marks = self.marks.iter().map(|m| m.x);
        Frame {
            x: self.x.span(points().map(|p| p.0).chain(marks)),
            y: self.y.span(points().map(|p| p.1)),
            x_scale: self.x.scale,
            y_scale: self.y.scale,
        }
    }

    fn draw(&self, svg: &mut Svg, top: f64) {
        let (left, right, bottom) = (LEFT, WIDTH - RIGHT, top + self.height);
        let frame = self.frame();
        let at_x = |x: f64| left + frame.along_x(x) * (right - left);
        let at_y = |y: f64| bottom - frame.along_y(y) * self.height;

        for tick in self.x.scale.ticks(frame.x, 8) {
            let x = at_x(tick.at);
            svg.line((x, top), (x, bottom), if tick.label.is_some() { "grid" } else { "fine" });
            if let Some(label) = &tick.label {
                svg.text((x, bottom + 17.0), "middle", "tick", label);
            }
        }
        for tick in self.y.scale.ticks(frame.y, 6) {
            let y = at_y(tick.at);
            svg.line((left, y), (right, y), if tick.label.is_some() { "grid" } else { "fine" });
            if let Some(label) = &tick.label {
                svg.text((left - 7.0, y + 4.0), "end", "tick", label);
            }
        }
        svg.rect((left, top), (right - left, self.height), "frame");
        svg.text((0.5 * (left + right), bottom + 36.0), "middle", "label", &self.x.label);
        svg.turned_text((16.0, 0.5 * (top + bottom)), "label", &self.y.label);

        for mark in &self.marks {
            let x = at_x(mark.x);
            svg.line((x, top), (x, bottom), "mark");
        }
        // Notes are above the plot, opposite the legend, where nothing is drawn.
        let notes: Vec<&str> = self.marks.iter().map(|m| m.note.as_str()).collect();
        svg.text((right, top - 6.0), "end", "note", &notes.join(" · "));
        let mut legend_at = left;
        for (i, series) in self.series.iter().enumerate() {
            let colour = PALETTE[series.colour.unwrap_or(i) % PALETTE.len()];
            let dash = DASHES[series.dash.unwrap_or(i) % DASHES.len()];
            let shown = |p: &(f64, f64)| (frame.shows(p.0, p.1)).then(|| (at_x(p.0), at_y(p.1)));
            let points: Vec<Option<(f64, f64)>> = series.points.iter().map(shown).collect();
            if series.line {
                svg.polyline(&points, colour, dash);
            }
            if series.dots {
                points.iter().flatten().for_each(|p| svg.dot(*p, colour, series.hollow));
            }
            if self.series.len() > 1 {
                let y = top - 10.0;
                if series.line {
                    svg.polyline(&[Some((legend_at, y)), Some((legend_at + 28.0, y))], colour, dash);
                }
                if series.dots {
                    svg.dot((legend_at + 14.0, y), colour, series.hollow);
                }
                svg.text((legend_at + 34.0, y + 4.0), "start", "key", &series.name);
                // Letters of the legend are about 6.6 pixels wide.
                legend_at += 56.0 + 6.6 * series.name.chars().count() as f64;
            }
        }
    }
}

/// Panels below each other under one title.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The title.
    pub title: String,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

impl Figure {
    /// The whole picture.
    pub fn svg(&self) -> String {
        let height = TITLE + self.panels.iter().map(|p| p.head() + p.height + BELOW).sum::<f64>();
        let mut svg = Svg::new(WIDTH, height, &self.title);
        svg.text((LEFT, 22.0), "start", "title", &self.title);
        let mut top = TITLE;
        for panel in &self.panels {
            panel.draw(&mut svg, top + panel.head());
            top += panel.head() + panel.height + BELOW;
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(points: Vec<(f64, f64)>, y: Scale) -> Figure {
        let panel = Panel {
            x: Axis::new("x", Scale::Linear),
            y: Axis::new("a < b & c", y),
            height: 200.0,
            series: vec![Series::line("one", points).with_dots(), Series::line("two", vec![(0.0, 1.0), (1.0, 2.0)])],
            marks: vec![Mark { x: 0.5, note: "best".into() }],
        };
        Figure { title: "\"quoted\" <title>".into(), panels: vec![panel] }
    }

    /// Checks an SVG: tags are closed in order, and numbers can be parsed.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        for piece in svg.split('<').skip(1) {
            let (tag, _) = piece.split_once('>').expect("a tag ends");
            match tag {
                t if t.starts_with('/') => assert_eq!(open.pop(), Some(&t[1..])),
                t if t.ends_with('/') => {}
                t => open.push(t.split_whitespace().next().expect("a tag has a name")),
            }
        }
        assert!(open.is_empty(), "{open:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
        assert!(svg.contains("&lt;title&gt;") && svg.contains("a &lt; b &amp; c"));
    }

    #[test]
    fn pictures_are_well_formed_whatever_the_data() {
        let whole = vec![(0.0, 1.0), (1.0, 10.0), (2.0, 1000.0)];
        for points in [
            whole.clone(),
            vec![],
            vec![(0.0, f64::NAN), (f64::INFINITY, 1.0)],
            vec![(3.0, 5.0)],
            vec![(0.0, -1.0), (1.0, 0.0)],
            vec![(1e300, 1e-300), (-1e300, 1e300)],
        ] {
            for scale in [Scale::Linear, Scale::Log] {
                assert_well_formed(&figure(points.clone(), scale).svg());
            }
        }
        let svg = figure(whole, Scale::Log).svg();
        assert_eq!(svg.matches("<circle").count(), 4, "three dots and one in the legend");
        assert!(svg.contains(">10³<"), "{svg}");
    }

    #[test]
    fn a_missing_point_interrupts_the_line() {
        let svg = figure(vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 2.0), (3.0, 1.0)], Scale::Linear).svg();
        // One of four points is missing: the single first point draws no line, the last two draw one.
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("<polyline").count(), 1 + 1 + 2);
    }
}
