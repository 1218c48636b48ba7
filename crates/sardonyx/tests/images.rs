//! ImageDecoder in sessions with the decoder of this crate: bytes of reference decoders for each
//! format, and malformed files.

use base64::prelude::{BASE64_STANDARD, Engine};
use sardonyx::io::{DecodeLimits, DecodedImage};
use sardonyx::ops::{ImageDecoder, PixelFormat};
use sardonyx::tool::Images;
use sardonyx::{ErrorKind, Model, Session, Tensor};

/// A row of the table `images.tsv`, with its image file.
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

/// Reads the image file of a row.
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

/// Decodes a file with a session of one ImageDecoder node.
fn decode_in(session: &Session, file: &[u8]) -> Result<Tensor, sardonyx::Error> {
    let file = Tensor::from_slice([file.len()], file).unwrap();
    Ok(session.run([("file", file)], &Default::default())?.tensor("image")?.clone())
}

#[test]
fn every_format_gives_the_bytes_of_its_reference() {
    let [rgb, bgr, grey] = [("RGB", 3), ("BGR", 3), ("Grayscale", 1)]
        .map(|(format, channels)| Session::new(&model(format, channels)).unwrap());
    for row in rows() {
        let reversed: Vec<u8> =
            row.rgb.chunks_exact(3).flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]).collect();
        for (session, channels, want) in
            [(&rgb, 3, &row.rgb), (&grey, 1, &row.grey), (&bgr, 3, &reversed)]
        {
            let got = decode_in(session, &row.file);
            let got = got.unwrap_or_else(|error| panic!("{}: {error}", row.name));
            assert_eq!(got.dims(), &[row.height, row.width, channels], "{}", row.name);
            assert_eq!(got.as_slice::<u8>().unwrap(), want, "{}", row.name);
        }
    }
}

/// Reads an image file and replaces `bytes` in it, `skip` bytes after the first occurrence of
/// `find`.
fn change_file(name: &str, find: &[u8], skip: usize, bytes: &[u8]) -> Vec<u8> {
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
        (vec![], "the image file is empty"),
        (
            b"GIF89a".to_vec(),
            "the image format is not one of BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and",
        ),
        (cut(baseline, 4), "JPEG: at byte 2: the segment of the marker FFE0 is truncated"),
        (cut(baseline, 20), "JPEG: at byte 20: the file ends before its last marker"),
        (cut(baseline, last), &format!("JPEG: at byte {last}: the data of the scan end early")),
        (change_file(baseline, &[0xff, 0xc0], 1, &[0xc9]), "arithmetic coding is not supported"),
        (change_file(baseline, &[0xff, 0xc0], 1, &[0xc3]), "lossless JPEG is not supported"),
        (change_file(baseline, &[0xff, 0xc0], 1, &[0xc5]), "hierarchical JPEG is not supported"),
        (change_file(baseline, &[0xff, 0xc0], 4, &[12]), "samples of 12 bits are not supported"),
        (
            change_file(baseline, &[0xff, 0xc0], 5, &[0, 0]),
            "the image has no pixels: its size is 13 x 0",
        ),
        (change_file(baseline, &[0xff, 0xc0], 9, &[2]), "an image has 1, 3 or 4 components, not 2"),
        (
            change_file(baseline, &[0xff, 0xc0], 11, &[0x31, 0, 2, 0x21]),
            "component 2 has 2 x 1 samples for 3 x 1 pixels, which is not an integer ratio",
        ),
        (
            change_file(baseline, &[0xff, 0xc0], 11, &[0x51]),
            "component 1 has a bad sampling factor",
        ),
        (change_file(baseline, &[0xff, 0xda], 5, &[9]), "the scan has component 9, which is not"),
        (change_file(baseline, &[0xff, 0xda], 6, &[0x33]), "a Huffman table of the scan is"),
        (change_file(baseline, &[0xff, 0xc4], 21, &[200]), "a Huffman table has invalid codes"),
        (
            change_file(baseline, &[0xff, 0xdb], 4, &[7]),
            "a quantization table has the invalid number 07",
        ),
        (
            change_file(baseline, &[0xff, 0xdb], 1, &[0xee]),
            "the quantization table 0 is not defined",
        ),
        (change_file(progressive, &[0xff, 0xd0], 1, &[0xd3]), "is not the restart marker 0"),
        (
            change_file(progressive, &[0xff, 0xda], 11, &[9]),
            "a scan cannot hold coefficients 9 to 0",
        ),
        (
            change_file(progressive, &[0xff, 0xda], 13, &[0x10]),
            "the scan repeats bits of coefficients, or refines bits",
        ),
        (cut("png", 60), "PNG: "),
        (cut("bmp", 90), "BMP: "),
        (cut("pnm P6", 12), "PNM: "),
        (cut("tiff", 90), "TIFF: "),
        (cut("webp lossy", 90), "WebP: "),
        (cut("jpeg 2000", 200), "JPEG 2000: "),
        (change_file("bmp", b"BM", 18, &[255, 255, 255, 127]), "BMP: "),
        (
            b"P6 20000 20000 255\n".to_vec(),
            "PNM: the image size is 20000 x 20000, above the limit of",
        ),
    ];
    let session = Session::new(&model("RGB", 3)).unwrap();
    let mut wrong = Vec::new();
    for (file, want) in cases {
        let error = decode_in(&session, file).expect_err(want);
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
    // The header declares ten thousand pixels along each side, and the file has none.
    let bmp = change_file("bmp", b"BM", 18, &[16, 39, 0, 0, 16, 39, 0, 0]);
    let jpeg = change_file("jpeg 4:2:0", &[0xff, 0xc0], 5, &[39, 16, 39, 16]);
    let pnm = b"P6 10000 10000 255\n".to_vec();
    let model = model("RGB", 3);
    let session = Session::builder(&model).memory_limit(16 << 20).build().unwrap();
    for file in [&jpeg, &pnm, &bmp] {
        let message = decode_in(&session, file).unwrap_err().to_string();
        assert!(message.contains("the memory limit is 16777216"), "{message}");
    }
    // An image within the limit is decoded as usual.
    assert!(decode_in(&session, &file("png")).is_ok());
}

/// Pseudo-random generator with a seed (G. Marsaglia, "Xorshift RNGs", 2003).
struct Random(u64);

impl Random {
    /// Returns a number below `bound`.
    fn next_below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// Changes some bytes of a file, and often truncates it.
    fn damage(&mut self, file: &[u8]) -> Vec<u8> {
        let mut file = file.to_vec();
        if self.next_below(4) == 0 {
            file.truncate(1 + self.next_below(file.len()));
        }
        for _ in 0..self.next_below(6) {
            // Most changes hit the header, which affects the decoder most.
            let bound = if self.next_below(2) == 0 { file.len().min(200) } else { file.len() };
            let at = self.next_below(bound);
            match self.next_below(3) {
                0 => file[at] ^= 1 << self.next_below(8),
                1 => file[at] = self.next_below(256) as u8,
                _ => file[at] = [0, 255, 127, 128][self.next_below(4)],
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
            let format = format[random.next_below(3)];
            let Ok(image) = Images.open(&file) else {
                refused += 1;
                continue;
            };
            // Limits the memory like a session does.
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
    // Some files decode and some fail, so that the test covers both.
    assert!(decoded > 300 && refused > 300);
}

const LIMITS: DecodeLimits = DecodeLimits { max_side: 100, max_bytes: 1 << 20 };

#[test]
fn decoded_images_have_the_pixels_of_the_operator() {
    for row in rows() {
        let image = DecodedImage::decode(&row.file, &LIMITS);
        let image = image.unwrap_or_else(|error| panic!("{}: {error}", row.name));
        assert_eq!((image.width(), image.height()), (row.width, row.height), "{}", row.name);
        let channels = match row.name {
            "png with alpha" | "png palette" | "tiff with alpha" => 4,
            "webp lossy with alpha" | "webp lossless with alpha" => 4,
            "png grey with alpha" => 2,
            "bmp" | "bmp palette" | "bmp 1 bit" => 3,
            _ if row.rgb.chunks_exact(3).all(|pixel| pixel[0] == pixel[1]) => 1,
            _ => 3,
        };
        assert_eq!(image.channels(), channels, "{}", row.name);
        let colors = image.into_channels(3).unwrap().into_samples();
        // The operator truncates 16 bits to the upper 8; decoded images are rounded.
        let most = if row.name.contains("16 bits") { 1 } else { 0 };
        let mut pairs = colors.iter().zip(&row.rgb);
        assert!(pairs.all(|(a, b)| a.abs_diff(*b) <= most), "{}", row.name);
    }
}

#[test]
fn decoded_images_are_upright() {
    // Inserts a segment of Exif data with the orientation 6 after the start marker.
    let exif = b"\xff\xe1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0";
    let jpeg = file("jpeg 4:2:0 of several units");
    let plain = DecodedImage::decode(&jpeg, &LIMITS).unwrap();
    let rotated = [&jpeg[..2], exif, &jpeg[2..]].concat();
    let rotated = DecodedImage::decode(&rotated, &LIMITS).unwrap();
    assert_eq!((rotated.width(), rotated.height()), (plain.height(), plain.width()));
    // The top row of the result is the left column of the image, from the bottom to the top.
    let left = plain.samples().chunks_exact(3 * plain.width()).rev().map(|row| &row[..3]);
    assert!(rotated.samples().chunks_exact(3).zip(left).all(|(a, b)| a == b));
}

fn decode(file: &[u8]) -> DecodedImage {
    DecodedImage::decode(file, &LIMITS).unwrap()
}

#[test]
fn decoded_images_change_channels_and_size() {
    let into =
        |file: &[u8], channels: usize| decode(file).into_channels(channels).unwrap().into_samples();
    let color = b"P6 1 1 255\n\x0a\xc8\x46";
    assert_eq!(into(color, 1), [150]);
    assert_eq!(into(color, 2), [150, 255]);
    assert_eq!(into(color, 4), [10, 200, 70, 255]);
    let grey = b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 2\nMAXVAL 255\nENDHDR\n\x07\x09";
    assert_eq!(into(grey, 1), [7]);
    assert_eq!(into(grey, 3), [7, 7, 7]);
    assert_eq!(into(grey, 4), [7, 7, 7, 9]);
    // 16 bits are rounded to 8: from 129/257 of a step on up to the next value.
    assert_eq!(into(b"P5 3 1 65535\n\x00\x80\x00\x81\xff\xff", 1), [0, 1, 255]);
    assert_eq!(decode(color).into_channels(5).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(decode(color).resize(3, 0).unwrap_err().kind(), ErrorKind::Argument);
    let resized = decode(b"P5 2 1 255\n\x00\x64").resize(4, 2).unwrap();
    assert_eq!((resized.width(), resized.height()), (4, 2));
    assert_eq!(resized.samples(), [0, 25, 75, 100, 0, 25, 75, 100]);
}

#[test]
fn decoded_images_have_limits() {
    let cases = [
        (
            &b"P5 101 1 255\n"[..],
            "PNM: the image size is 101 x 1, above the limit of 100 pixels a side",
        ),
        (b"P5 0 1 255\n", "PNM: the image has no pixels: its size is 0 x 1"),
        (b"P6 9 9 65535\n", "PNM: 9 x 9 pixels take 1215 bytes, above the limit of 1214"),
        (b"P6 2 1 255\n\0", "PNM: 1 bytes of samples are too few for 2 x 1 pixels"),
        (b"GIF89a", "the image format is not one of BMP"),
    ];
    let limits = DecodeLimits { max_side: 100, max_bytes: 1214 };
    for (file, what) in cases {
        let error = DecodedImage::decode(file, &limits).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Format);
        let message = error.to_string();
        assert!(message.contains("the image cannot be decoded: ") && message.contains(what));
    }
}
