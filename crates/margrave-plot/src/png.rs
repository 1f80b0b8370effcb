//! A raster picture and its PNG file.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// Pixels, red green blue, from the top left.
#[derive(Debug, Clone)]
pub struct Image {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Image {
    /// A white picture.
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![[255; 3]; width * height] }
    }

    /// Sets the colour of a pixel inside the picture.
    pub fn set(&mut self, x: i64, y: i64, colour: [u8; 3]) {
        if x >= 0 && y >= 0 && (x as usize) < self.width && (y as usize) < self.height {
            self.pixels[y as usize * self.width + x as usize] = colour;
        }
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// The colour of a pixel, white beyond the edge.
    pub fn get(&self, x: usize, y: usize) -> [u8; 3] {
        if x < self.width && y < self.height { self.pixels[y * self.width + x] } else { [255; 3] }
    }

    /// Blends a colour into a pixel inside the picture; the share is from 0 to 1.
    pub fn blend(&mut self, x: i64, y: i64, colour: [u8; 3], share: f64) {
        if x >= 0 && y >= 0 && (x as usize) < self.width && (y as usize) < self.height {
            let pixel = &mut self.pixels[y as usize * self.width + x as usize];
            for (old, new) in pixel.iter_mut().zip(colour) {
                let mixed = f64::from(*old) + share.clamp(0.0, 1.0) * (f64::from(new) - f64::from(*old));
                *old = mixed.round() as u8;
            }
        }
    }

    /// A disc with a smooth edge; the centre of pixel (0, 0) is (½, ½).
    pub fn disc(&mut self, (x, y): (f64, f64), radius: f64, fill: [u8; 3]) {
        let reach = radius.ceil() as i64 + 2;
        for py in y.floor() as i64 - reach..=y.floor() as i64 + reach {
            for px in x.floor() as i64 - reach..=x.floor() as i64 + reach {
                let distance = (px as f64 + 0.5 - x).hypot(py as f64 + 0.5 - y);
                let share = radius + 0.5 - distance;
                if share > 0.0 {
                    self.blend(px, py, fill, share);
                }
            }
        }
    }

    /// The bytes of the file.
    pub fn to_png(&self) -> std::io::Result<Vec<u8>> {
        let mut raw = Vec::with_capacity(self.height * (3 * self.width + 1));
        for row in self.pixels.chunks(self.width.max(1)) {
            // Filter 0: unfiltered bytes.
            raw.push(0);
            row.iter().for_each(|pixel| raw.extend_from_slice(pixel));
        }
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
        packer.write_all(&raw)?;
        let packed = packer.finish()?;
        let mut head = Vec::new();
        head.extend_from_slice(&(self.width as u32).to_be_bytes());
        head.extend_from_slice(&(self.height as u32).to_be_bytes());
        // Eight bits per channel, RGB, deflate, default filtering, no interlacing.
        head.extend_from_slice(&[8, 2, 0, 0, 0]);
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        for (name, data) in [(b"IHDR", &head), (b"IDAT", &packed), (b"IEND", &Vec::new())] {
            file.extend_from_slice(&(data.len() as u32).to_be_bytes());
            let mut crc = Crc::new();
            crc.update(name);
            crc.update(data);
            file.extend_from_slice(name);
            file.extend_from_slice(data);
            file.extend_from_slice(&crc.sum().to_be_bytes());
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_chunks() {
        let mut image = Image::new(5, 4);
        image.disc((2.5, 2.5), 1.0, [1, 2, 3]);
        image.set(-1, 99, [0; 3]);
        image.blend(-1, 99, [0; 3], 0.5);
        assert_eq!((image.get(2, 2), image.get(0, 0), image.get(9, 9)), ([1, 2, 3], [255; 3], [255; 3]));
        let bytes = image.to_png().expect("memory can be written");
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x05\x00\x00\x00\x04\x08\x02"));
        assert!(bytes.windows(4).any(|w| w == b"IDAT") && bytes.ends_with(&[0xae, 0x42, 0x60, 0x82]));
    }
}
