//! Pictures as pixels: smooth discs and lines, and text in an embedded font.

use ab_glyph::{Font, FontRef, Point, PxScale, ScaleFont};

use super::canvas::{Anchor, Canvas, Role};
use super::png::Image;

const REGULAR: &[u8] = include_bytes!("../font/plot-sans.ttf");
const BOLD: &[u8] = include_bytes!("../font/plot-sans-bold.ttf");

/// The colour of text, as in the style sheet of the SVG.
const TEXT: [u8; 3] = [0x22; 3];

/// The pixels of a picture, `scale` per unit of its coordinates.
pub(super) struct Raster {
    image: Image,
    scale: f64,
}

/// The lower left corner of a text, and its direction.
struct Line {
    at: (f64, f64),
    upwards: bool,
}

/// `#rrggbb` or `#rgb`; black if it is neither.
fn channels(colour: &str) -> [u8; 3] {
    let digits = colour.trim_start_matches('#');
    let wide = digits.len() == 6;
    let channel = |at: usize| {
        let part = if wide { digits.get(2 * at..2 * at + 2) } else { digits.get(at..at + 1) };
        let value = part.and_then(|part| u8::from_str_radix(part, 16).ok()).unwrap_or(0);
        if wide { value } else { 17 * value }
    };
    [channel(0), channel(1), channel(2)]
}

impl Raster {
    /// A white picture of `width` × `height` units.
    pub(super) fn new(width: f64, height: f64, scale: f64) -> Self {
        let pixels = |units: f64| (units * scale).round() as usize;
        Self { image: Image::new(pixels(width), pixels(height)), scale }
    }

    pub(super) fn finish(self) -> Image {
        self.image
    }

    /// Fills a rectangle with the colours of its points: `colour` takes shares of width and height, from the top left.
    pub(super) fn area(&mut self, at: (f64, f64), size: (f64, f64), colour: impl Fn(f64, f64) -> [u8; 3]) {
        let edge = |units: f64| (units * self.scale).round() as i64;
        let (x0, y0, x1, y1) = (edge(at.0), edge(at.1), edge(at.0 + size.0), edge(at.1 + size.1));
        for y in y0..y1 {
            for x in x0..x1 {
                let share = |v: i64, from: i64, to: i64| ((v - from) as f64 + 0.5) / (to - from) as f64;
                self.image.set(x, y, colour(share(x, x0, x1), share(y, y0, y1)));
            }
        }
    }

    /// Line segments, `thick` units wide. Overlapping segments do not get darker.
    pub(super) fn strokes(&mut self, pieces: &[[(f64, f64); 2]], thick: f64, ink: [u8; 3], opacity: f64) {
        let (width, height) = self.image.size();
        let mut cover = vec![0u8; width * height];
        let half = 0.5 * thick * self.scale;
        let reach = half + 1.0;
        for [a, b] in pieces {
            let (a, b) = ((a.0 * self.scale, a.1 * self.scale), (b.0 * self.scale, b.1 * self.scale));
            let span = |p: f64, q: f64, most: usize| {
                let (low, high) = ((p.min(q) - reach).floor().max(0.0), (p.max(q) + reach).ceil().max(0.0));
                (low as usize).min(most)..(high as usize).min(most)
            };
            let (dx, dy) = (b.0 - a.0, b.1 - a.1);
            let square = (dx * dx + dy * dy).max(1e-12);
            for y in span(a.1, b.1, height) {
                for x in span(a.0, b.0, width) {
                    let (px, py) = (x as f64 + 0.5 - a.0, y as f64 + 0.5 - a.1);
                    let along = ((px * dx + py * dy) / square).clamp(0.0, 1.0);
                    let distance = (px - along * dx).hypot(py - along * dy);
                    let share = (255.0 * (half + 0.5 - distance).clamp(0.0, 1.0)) as u8;
                    cover[y * width + x] = cover[y * width + x].max(share);
                }
            }
        }
        for (at, share) in cover.into_iter().enumerate().filter(|(_, share)| *share > 0) {
            self.image.blend((at % width) as i64, (at / width) as i64, ink, opacity * f64::from(share) / 255.0);
        }
    }

    /// Draws text along a line, or only measures it: its width in units.
    fn set(&mut self, role: Role, text: &str, line: Option<&Line>) -> f64 {
        self.set_in(TEXT, role, text, line)
    }

    fn set_in(&mut self, ink: [u8; 3], role: Role, text: &str, line: Option<&Line>) -> f64 {
        let (size, bold) = role.font();
        let Ok(font) = FontRef::try_from_slice(if bold { BOLD } else { REGULAR }) else { return 0.0 };
        // Font sizes are em sizes; the font crate measures from the lowest to the highest point.
        let em = font.units_per_em().unwrap_or(1000.0);
        let pixels = size * self.scale;
        let scaled = font.as_scaled(PxScale::from(pixels as f32 * font.height_unscaled() / em));
        let mut caret = 0.0f32;
        for c in text.chars().filter(|c| !c.is_control()) {
            let id = scaled.glyph_id(c);
            if let Some(line) = line {
                // Upward text swaps the axes.
                let (x, y) = (line.at.0 * self.scale, line.at.1 * self.scale);
                let from = if line.upwards { (-y, x) } else { (x, y) };
                let start = ab_glyph::point(from.0 as f32 + caret, from.1 as f32);
                self.glyph(&font, id.with_scale_and_position(scaled.scale(), start), line.upwards, ink);
            }
            caret += scaled.h_advance(id);
        }
        f64::from(caret) / self.scale
    }

    fn glyph(&mut self, font: &FontRef<'_>, glyph: ab_glyph::Glyph, upwards: bool, ink: [u8; 3]) {
        let Some(outline) = font.outline_glyph(glyph) else { return };
        let Point { x, y } = outline.px_bounds().min;
        let (x, y) = (x as i64, y as i64);
        outline.draw(|dx, dy, share| {
            let (along, across) = (x + i64::from(dx), y + i64::from(dy));
            let (px, py) = if upwards { (across, -along - 1) } else { (along, across) };
            self.image.blend(px, py, ink, f64::from(share));
        });
    }
}

impl Canvas for Raster {
    fn text(&mut self, at: (f64, f64), anchor: Anchor, role: Role, text: &str) {
        let width = self.set(role, text, None);
        let left = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5 * width,
            Anchor::End => width,
        };
        self.set(role, text, Some(&Line { at: (at.0 - left, at.1), upwards: false }));
    }

    fn turned_text(&mut self, at: (f64, f64), role: Role, text: &str) {
        let width = self.set(role, text, None);
        self.set(role, text, Some(&Line { at: (at.0, at.1 + 0.5 * width), upwards: true }));
    }

    fn frame(&mut self, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)];
        let sides: Vec<[(f64, f64); 2]> = (0..4).map(|at| [corners[at], corners[(at + 1) % 4]]).collect();
        self.strokes(&sides, 1.0, [0x44; 3], 1.0);
    }

    fn sample(&mut self, (x, y): (f64, f64), colour: &str, ring: bool) {
        let (rim, ink) = if ring { (1.4, [0; 3]) } else { (0.6, [255; 3]) };
        let at = (x * self.scale, y * self.scale);
        self.image.disc(at, (3.6 + 0.5 * rim) * self.scale, ink);
        self.image.disc(at, (3.6 - 0.5 * rim) * self.scale, channels(colour));
    }

    fn fill(&mut self, at: (f64, f64), size: (f64, f64), colour: &str) {
        let ink = channels(colour);
        self.area(at, size, |_, _| ink);
    }

    fn outline(&mut self, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)];
        let sides: Vec<[(f64, f64); 2]> = (0..4).map(|at| [corners[at], corners[(at + 1) % 4]]).collect();
        // As in the SVG: visible on any colour.
        self.strokes(&sides, 5.0, [255; 3], 1.0);
        self.strokes(&sides, 2.0, [0xdd, 0, 0], 1.0);
    }

    fn ink(&mut self, at: (f64, f64), colour: &str, text: &str) {
        let width = self.set(Role::Tick, text, None);
        let line = Line { at: (at.0 - 0.5 * width, at.1), upwards: false };
        self.set_in(channels(colour), Role::Tick, text, Some(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pixels in a rectangle that are not white.
    fn inked(image: &Image, (x, y): (usize, usize), (width, height): (usize, usize)) -> usize {
        let rows = y..y + height;
        rows.flat_map(|y| (x..x + width).map(move |x| (x, y))).filter(|&(x, y)| image.get(x, y) != [255; 3]).count()
    }

    #[test]
    fn text_lies_where_it_is_put() {
        let mut raster = Raster::new(100.0, 60.0, 2.0);
        raster.text((50.0, 20.0), Anchor::Middle, Role::Tick, "0.25");
        let width = raster.set(Role::Tick, "0.25", None);
        // Digits of this font are 0.636 em wide, a point is half of that.
        assert!((width - 12.0 * 3.5 * 0.636).abs() < 0.2, "{width}");
        let image = raster.finish();
        let (left, right) = ((100.0 - width).floor() as usize, (100.0 + width).ceil() as usize);
        assert!(inked(&image, (left, 20), (right - left, 21)) > 150);
        assert_eq!(inked(&image, (0, 0), (200, 120)), inked(&image, (left, 18), (right - left, 24)), "nowhere else");

        let mut raster = Raster::new(60.0, 100.0, 2.0);
        raster.turned_text((30.0, 50.0), Role::Tick, "0.25");
        let turned = raster.finish();
        let (all, own) = (inked(&turned, (0, 0), (120, 200)), inked(&turned, (38, left), (24, right - left)));
        assert!(all > 150 && all == own, "{all} {own}");

        let mut raster = Raster::new(100.0, 60.0, 2.0);
        raster.text((90.0, 20.0), Anchor::End, Role::Title, "γ = ½, ‖x‖ ≤ Ж");
        let image = raster.finish();
        assert!(inked(&image, (0, 0), (200, 60)) > 300);
        // Text outside the picture is cut off; an unknown character becomes a box.
        let mut raster = Raster::new(20.0, 10.0, 2.0);
        raster.text((-5.0, 5.0), Anchor::Start, Role::Label, "漢字 far too long for this\u{7}");
    }

    #[test]
    fn lines_and_samples_have_their_colours() {
        let mut raster = Raster::new(20.0, 20.0, 2.0);
        raster.strokes(&[[(0.0, 10.0), (20.0, 10.0)], [(10.0, 10.0), (20.0, 10.0)]], 2.0, [0; 3], 0.5);
        raster.sample((5.0, 4.0), "#d55e00", true);
        raster.sample((15.0, 4.0), "#fff", false);
        let image = raster.finish();
        // Half black over white, also where segments overlap.
        assert!(image.get(30, 20)[0].abs_diff(128) <= 1 && image.get(5, 20) == image.get(30, 20));
        assert_eq!((image.get(10, 8), image.get(10, 14)), ([0xd5, 0x5e, 0], [0; 3]));
        assert_eq!(channels("#0a0"), [0, 170, 0]);
    }
}
