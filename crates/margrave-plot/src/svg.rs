//! Shapes as SVG text. Common styles are CSS classes.

use std::fmt::Write;

const STYLE: &str = "\
text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;fill:#222}\
.title{font-size:15px;font-weight:bold}.label{font-size:13px}.tick,.key,.note{font-size:12px}\
.grid{stroke:#d9d9d9;stroke-width:1}.fine{stroke:#f0f0f0;stroke-width:1}\
.frame{fill:none;stroke:#444;stroke-width:1}.mark{stroke:#444;stroke-width:1;stroke-dasharray:4 4}\
.boundary{fill:none;stroke:#111;stroke-width:2}.margin{fill:none;stroke:#555;stroke-width:1.1;stroke-dasharray:none;opacity:.8}";

/// A picture being written.
pub(super) struct Svg {
    text: String,
}

impl Svg {
    /// A white page with a title for screen readers.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
            escape(title)
        );
        Self { text }
    }

    fn push(&mut self, shape: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{shape}");
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.push(format_args!(
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" class=\"{class}\"/>"
        ));
    }

    pub(super) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        self.push(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" class=\"{class}\"/>"
        ));
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: &str, class: &str, text: &str) {
        let text = escape(text);
        self.push(format_args!(
            "<text x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    /// Text that reads upwards, centred on the point.
    pub(super) fn turned_text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let text = escape(text);
        self.push(format_args!(
            "<text transform=\"translate({x:.2} {y:.2}) rotate(-90)\" text-anchor=\"middle\" class=\"{class}\">{text}</text>"
        ));
    }

    /// A line through the points; a missing point interrupts it.
    pub(super) fn polyline(&mut self, points: &[Option<(f64, f64)>], colour: &str, dash: &str) {
        for run in points.split(Option::is_none).filter(|run| run.len() > 1) {
            let path: Vec<String> = run.iter().flatten().map(|(x, y)| format!("{x:.2},{y:.2}")).collect();
            let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
            self.push(format_args!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dash}/>",
                path.join(" ")
            ));
        }
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), colour: &str, hollow: bool) {
        let fill = if hollow { format!("#fff\" stroke=\"{colour}\" stroke-width=\"1.6") } else { colour.to_owned() };
        self.push(format_args!("<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"3\" fill=\"{fill}\"/>"));
    }

    /// A rectangle of one colour.
    pub(super) fn fill(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        self.push(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{colour}\"/>"
        ));
    }

    /// An outlined rectangle that is visible on any colour.
    pub(super) fn outline(&mut self, (x, y): (f64, f64), (width, height): (f64, f64)) {
        for (stroke, thick) in [("#fff", 5), ("#d00", 2)] {
            self.push(format_args!(
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{thick}\"/>"
            ));
        }
    }

    /// A centred number in its own colour.
    pub(super) fn ink(&mut self, (x, y): (f64, f64), colour: &str, text: &str) {
        let text = escape(text);
        self.push(format_args!(
            "<text x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"middle\" class=\"key\" style=\"fill:{colour}\">{text}</text>"
        ));
    }

    /// Separate line segments, as one shape.
    pub(super) fn pieces(&mut self, pieces: &[[(f64, f64); 2]], class: &str) {
        if pieces.is_empty() {
            return;
        }
        let path: String =
            pieces.iter().map(|[a, b]| format!("M{:.1} {:.1}L{:.1} {:.1}", a.0, a.1, b.0, b.1)).collect();
        self.push(format_args!("<path d=\"{path}\" class=\"{class}\"/>"));
    }

    /// A sample, with a ring if it is a support vector.
    pub(super) fn sample(&mut self, (x, y): (f64, f64), colour: &str, ring: bool) {
        let rim = if ring { " stroke=\"#000\" stroke-width=\"1.4\"" } else { " stroke=\"#fff\" stroke-width=\"0.6\"" };
        self.push(format_args!("<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"3.6\" fill=\"{colour}\"{rim}/>"));
    }

    /// Another picture of this crate, of `inner` pixels, scaled into a rectangle.
    pub(super) fn nested(&mut self, picture: &str, (x, y): (f64, f64), (width, height): (f64, f64), inner: (f64, f64)) {
        // The first tag is replaced by one with a position.
        let Some((_, body)) = picture.split_once('>') else { return };
        self.push(format_args!(
            "<svg x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" viewBox=\"0 0 {} {}\">{}",
            inner.0,
            inner.1,
            body.trim_end()
        ));
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Not allowed in XML.
            c if c.is_control() && !matches!(c, '\t' | '\n' | '\r') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
