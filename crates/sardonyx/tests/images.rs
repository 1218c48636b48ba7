//! ImageDecoder in sessions with the decoder of this crate: every format gives the bytes that it
//! gives elsewhere, and no file does harm.

use base64::prelude::{BASE64_STANDARD, Engine};
use sardonyx::{ErrorKind, ImageDecoder, Images, Model, PixelFormat, Session, Tensor};

/// A row of the table of images.
struct Row {
    name: &'static str,
    width: usize,
    height: usize,
    file: Vec<u8>,
    rgb: Vec<u8>,
    grey: Vec<u8>,
}

fn rows() -> Vec<Row> {
    let lines = include_str!("images.tsv").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let columns: [&str; 6] =
                line.split('\t').collect::<Vec<_>>().try_into().expect("six columns");
            let [name, width, height, file, rgb, grey] = columns;
            let [file, rgb, grey] = [file, rgb, grey].map(|x| BASE64_STANDARD.decode(x).unwrap());
            let [width, height] = [width, height].map(|size| size.parse().unwrap());
            Row { name, width, height, file, rgb, grey }
        })
        .collect()
}

/// The file of a row.
fn file(name: &str) -> Vec<u8> {
    rows().into_iter().find(|row| row.name == name).expect("a row of that name").file
}

fn model(format: &str, channels: usize) -> Model {
    Model::from_text(&format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
         g (uint8[N] file) => (uint8[H, W, {channels}] image) {{
             image = ImageDecoder <pixel_format = \"{format}\"> (file)
         }}",
    ))
    .unwrap()
}

/// What a session says of a file.
fn decoded(session: &Session, file: &[u8]) -> Result<Tensor, sardonyx::Error> {
    let file = Tensor::from_slice([file.len()], file).unwrap();
    Ok(session.run([("file", file)])?.tensor("image")?.clone())
}

#[test]
fn every_format_gives_the_bytes_of_its_reference() {
    let [rgb, bgr, grey] = [("RGB", 3), ("BGR", 3), ("Grayscale", 1)]
        .map(|(format, channels)| Session::new(&model(format, channels)).unwrap());
    for row in rows() {
        let same = |session: &Session, channels: usize, want: &[u8]| {
            let got = decoded(session, &row.file);
            let got = got.unwrap_or_else(|error| panic!("{}: {error}", row.name));
            assert_eq!(got.dims(), &[row.height, row.width, channels], "{}", row.name);
            assert_eq!(got.as_slice::<u8>().unwrap(), want, "{}", row.name);
        };
        same(&rgb, 3, &row.rgb);
        same(&grey, 1, &row.grey);
        let reversed: Vec<u8> =
            row.rgb.chunks_exact(3).flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]).collect();
        same(&bgr, 3, &reversed);
    }
}

/// A file whose bytes at some places are others.
fn changed(name: &str, find: &[u8], skip: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file(name);
    let at = file.windows(find.len()).position(|window| window == find).expect("these bytes");
    file[at + skip..][..bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn errors_name_format_place_and_reason() {
    let cut = |name: &str, end: usize| file(name)[..end].to_vec();
    let baseline = "jpeg 4:4:4";
    let progressive = "jpeg progressive 4:4:4 with restart markers";
    let last = file(baseline).len() - 30;
    let cases: &[(Vec<u8>, &str)] = &[
        (vec![], "the file is empty"),
        (b"GIF89a".to_vec(), "its format is not one of BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and"),
        (cut(baseline, 4), "JPEG: at byte 2: the segment of the marker FFE0 is truncated"),
        (cut(baseline, 20), "JPEG: at byte 20: the file ends before its last marker"),
        (cut(baseline, last), &format!("JPEG: at byte {last}: the data of the scan end early")),
        (changed(baseline, &[0xff, 0xc0], 1, &[0xc9]), "arithmetic coding is not supported"),
        (changed(baseline, &[0xff, 0xc0], 1, &[0xc3]), "lossless JPEG is not supported"),
        (changed(baseline, &[0xff, 0xc0], 1, &[0xc5]), "hierarchical JPEG is not supported"),
        (changed(baseline, &[0xff, 0xc0], 4, &[12]), "samples of 12 bits are not supported"),
        (changed(baseline, &[0xff, 0xc0], 5, &[0, 0]), "the size is 13 x 0"),
        (changed(baseline, &[0xff, 0xc0], 9, &[2]), "an image has 1, 3 or 4 components, not 2"),
        (
            changed(baseline, &[0xff, 0xc0], 11, &[0x31, 0, 2, 0x21]),
            "component 2 has 2 x 1 samples for 3 x 1 pixels, which is not an integer ratio",
        ),
        (changed(baseline, &[0xff, 0xc0], 11, &[0x51]), "component 1 has a bad sampling factor"),
        (changed(baseline, &[0xff, 0xda], 5, &[9]), "the scan has component 9, which is not"),
        (changed(baseline, &[0xff, 0xda], 6, &[0x33]), "a Huffman table of the scan is"),
        (changed(baseline, &[0xff, 0xc4], 21, &[200]), "a Huffman table has impossible codes"),
        (changed(baseline, &[0xff, 0xdb], 4, &[7]), "a quantization table has the number 07"),
        (changed(baseline, &[0xff, 0xdb], 1, &[0xee]), "the quantization table 0 is not defined"),
        (changed(progressive, &[0xff, 0xd0], 1, &[0xd3]), "is not the restart marker 0"),
        (changed(progressive, &[0xff, 0xda], 11, &[9]), "a scan cannot hold coefficients 9 to 0"),
        (
            changed(progressive, &[0xff, 0xda], 13, &[0x10]),
            "the scan repeats bits, or refines bits",
        ),
        (cut("png", 60), "PNG: "),
        (cut("bmp", 90), "BMP: "),
        (cut("pnm P6", 12), "PNM: "),
        (cut("tiff", 90), "TIFF: "),
        (cut("webp lossy", 90), "WebP: "),
        (cut("jpeg 2000", 200), "JPEG 2000: "),
        (changed("bmp", b"BM", 18, &[255, 255, 255, 127]), "BMP: "),
        (b"P6 20000 20000 255\n".to_vec(), "PNM: the size is 20000 x 20000, above the limit of"),
    ];
    let session = Session::new(&model("RGB", 3)).unwrap();
    let mut wrong = Vec::new();
    for (file, want) in cases {
        let error = decoded(&session, file).expect_err(want);
        assert_eq!(error.kind(), ErrorKind::Run, "{want}");
        let message = error.to_string();
        let words = ["ImageDecoder", "the image cannot be decoded: ", want];
        if !words.iter().all(|words| message.contains(words)) {
            wrong.push(format!("{message}\nis not about: {want}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_memory_limit_holds_before_anything_is_decoded() {
    // Ten thousand pixels along each side, of which the file has none.
    let bmp = changed("bmp", b"BM", 18, &[16, 39, 0, 0, 16, 39, 0, 0]);
    let jpeg = changed("jpeg 4:2:0", &[0xff, 0xc0], 5, &[39, 16, 39, 16]);
    let pnm = b"P6 10000 10000 255\n".to_vec();
    let model = model("RGB", 3);
    let session = Session::builder(&model).memory_limit(16 << 20).build().unwrap();
    for file in [&jpeg, &pnm, &bmp] {
        let message = decoded(&session, file).unwrap_err().to_string();
        assert!(message.contains("the memory limit is 16777216"), "{message}");
    }
    // An image within the limit is decoded.
    assert!(decoded(&session, &file("png")).is_ok());
}

/// Bytes that follow from a seed (G. Marsaglia, "Xorshift RNGs", 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// The file with some bytes changed, and often cut off.
    fn damage(&mut self, file: &[u8]) -> Vec<u8> {
        let mut file = file.to_vec();
        if self.below(4) == 0 {
            file.truncate(1 + self.below(file.len()));
        }
        for _ in 0..self.below(6) {
            // Headers decide most.
            let bound = if self.below(2) == 0 { file.len().min(200) } else { file.len() };
            let at = self.below(bound);
            match self.below(3) {
                0 => file[at] ^= 1 << self.below(8),
                1 => file[at] = self.below(256) as u8,
                _ => file[at] = [0, 255, 127, 128][self.below(4)],
            }
        }
        file
    }
}

#[test]
fn damaged_files_give_an_image_or_an_error() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut decoded, mut refused) = (0, 0);
    let rows = rows();
    for _ in 0..60 {
        for row in &rows {
            let file = random.damage(&row.file);
            let format = [PixelFormat::Rgb, PixelFormat::Bgr, PixelFormat::Grayscale];
            let format = format[random.below(3)];
            let Ok(image) = Images.open(&file) else {
                refused += 1;
                continue;
            };
            // As a session with a memory limit does it.
            let pixels = image.width() * image.height() * format.channels();
            if pixels.saturating_add(image.working_bytes()) > 64 << 20 {
                continue;
            }
            match image.decode(format, &mut vec![0; pixels]) {
                Ok(()) => decoded += 1,
                Err(_) => refused += 1,
            }
        }
    }
    // Both happen, so that the test tries something.
    assert!(decoded > 300 && refused > 300);
}
