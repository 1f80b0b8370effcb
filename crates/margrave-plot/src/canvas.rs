//! The two targets of drawing, SVG text and pixels, in the same coordinates.

use super::svg::Svg;

/// Which part of a text is at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The role of a text, which sets its size and weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Title,
    Label,
    Tick,
    Key,
}

impl Role {
    /// The class of the style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Role::Title => "title",
            Role::Label => "label",
            Role::Tick => "tick",
            Role::Key => "key",
        }
    }

    /// Size in pixels as in the style sheet, and whether it is bold.
    pub(super) fn font(self) -> (f64, bool) {
        match self {
            Role::Title => (15.0, true),
            Role::Label => (13.0, false),
            Role::Tick | Role::Key => (12.0, false),
        }
    }
}

/// Draws the parts that every picture has.
pub(super) trait Canvas {
    /// Text whose baseline starts, ends or is centred at the point.
    fn text(&mut self, at: (f64, f64), anchor: Anchor, role: Role, text: &str);
    /// Text that reads upwards, centred on the point.
    fn turned_text(&mut self, at: (f64, f64), role: Role, text: &str);
    /// The frame of a plot.
    fn frame(&mut self, at: (f64, f64), size: (f64, f64));
    /// A sample, with a ring if it is a support vector; the colour as `#rrggbb` or `#rgb`.
    fn sample(&mut self, at: (f64, f64), colour: &str, ring: bool);
    /// A rectangle of one colour, as `#rrggbb`.
    fn fill(&mut self, at: (f64, f64), size: (f64, f64), colour: &str);
    /// The border of a marked cell.
    fn outline(&mut self, at: (f64, f64), size: (f64, f64));
    /// Text in a cell, centred on the point, in a colour that is legible there.
    fn ink(&mut self, at: (f64, f64), colour: &str, text: &str);
}

impl Canvas for Svg {
    fn text(&mut self, at: (f64, f64), anchor: Anchor, role: Role, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        Svg::text(self, at, anchor, role.class(), text);
    }

    fn turned_text(&mut self, at: (f64, f64), role: Role, text: &str) {
        Svg::turned_text(self, at, role.class(), text);
    }

    fn frame(&mut self, at: (f64, f64), size: (f64, f64)) {
        self.rect(at, size, "frame");
    }

    fn sample(&mut self, at: (f64, f64), colour: &str, ring: bool) {
        Svg::sample(self, at, colour, ring);
    }

    fn fill(&mut self, at: (f64, f64), size: (f64, f64), colour: &str) {
        Svg::fill(self, at, size, colour);
    }

    fn outline(&mut self, at: (f64, f64), size: (f64, f64)) {
        Svg::outline(self, at, size);
    }

    fn ink(&mut self, at: (f64, f64), colour: &str, text: &str) {
        Svg::ink(self, at, colour, text);
    }
}
