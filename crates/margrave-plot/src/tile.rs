//! Several pictures on one page.

use super::svg::Svg;

/// Arranges pictures of this crate in rows of `columns`, each `width` pixels wide, under one title.
pub fn tile(title: &str, pictures: &[String], columns: usize, width: f64) -> String {
    let columns = columns.clamp(1, pictures.len().max(1));
    let sizes: Vec<Option<(f64, f64)>> = pictures.iter().map(|picture| size(picture)).collect();
    let tall = |at: usize| sizes[at].map_or(0.0, |(w, h)| width * h / w);
    let rows: Vec<f64> = (0..pictures.len())
        .step_by(columns)
        .map(|from| (from..(from + columns).min(pictures.len())).map(tall).fold(0.0, f64::max))
        .collect();
    let head = 40.0;
    let mut svg = Svg::new(width * columns as f64, head + rows.iter().sum::<f64>(), title);
    svg.text((18.0, 26.0), "start", "title", title);
    for (at, picture) in pictures.iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        let top = head + rows[..row].iter().sum::<f64>();
        if let Some(inner) = sizes[at] {
            svg.nested(picture, (width * column as f64, top), (width, tall(at)), inner);
        }
    }
    svg.finish()
}

/// Width and height of a picture of this crate; `None` for any other text.
fn size(picture: &str) -> Option<(f64, f64)> {
    let (_, rest) = picture.split_once("viewBox=\"0 0 ")?;
    let (both, _) = rest.split_once('"')?;
    let (width, height) = both.split_once(' ')?;
    let (width, height): (f64, f64) = (width.parse().ok()?, height.parse().ok()?);
    (width > 0.0 && height > 0.0).then_some((width, height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_scaled_to_their_places() {
        let picture = |w: f64, h: f64| Svg::new(w, h, "inner").finish();
        let page = tile("a & b", &[picture(100.0, 50.0), picture(200.0, 50.0), picture(10.0, 10.0)], 2, 300.0);
        // Two rows: the taller of 150 and 75, then 300; one line of title.
        assert_eq!(size(&page), Some((600.0, 490.0)));
        assert_eq!(page.matches("<svg ").count(), 4);
        assert_eq!(page.matches("</svg>").count(), 4);
        assert!(
            page.contains("<svg x=\"300.00\" y=\"40.00\" width=\"300.00\" height=\"75.00\" viewBox=\"0 0 200 50\">")
        );
        assert!(page.contains("<svg x=\"0.00\" y=\"190.00\""), "{page}");
        assert!(page.contains("a &amp; b"));
    }

    #[test]
    fn what_is_no_picture_leaves_a_gap() {
        assert_eq!(tile("t", &["hello".into()], 3, 100.0).matches("<svg ").count(), 1);
        assert_eq!(tile("t", &[], 3, 100.0).matches("<svg ").count(), 1);
    }
}
