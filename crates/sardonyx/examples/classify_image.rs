//! Classifies an image of a handwritten digit: decodes the file, scales it to the size of the
//! model's input, and prints the most probable classes.
//!
//! `cargo run --release -p sardonyx --features images --example classify_image [IMAGE]`

use std::error::Error;

use sardonyx::io::{DecodeLimits, DecodedImage};
use sardonyx::{Model, RunOptions, Session, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits");
    let path = std::env::args().nth(1).filter(|path| path.ends_with(".png"));
    let path = path.unwrap_or_else(|| format!("{digits}/seven.png"));

    let session = Session::new(&Model::open(format!("{digits}/digits.onnx"))?)?;

    // The model takes one channel of 8 x 8 pixels from 0 (black) to 1, with a dark digit on a light
    // ground.
    let image = DecodedImage::decode(&std::fs::read(path)?, &DecodeLimits::default())?;
    let image = image.into_channels(1)?.resize(8, 8)?;
    let pixels: Vec<f32> =
        image.samples().iter().map(|sample| f32::from(*sample) / 255.0).collect();
    let image = Tensor::from_vec([1, 1, 8, 8], pixels)?;

    let outputs = session.run([("image", image)], &RunOptions::default())?;
    let probabilities = outputs.tensor("probabilities")?.as_slice::<f32>()?;
    let mut classes: Vec<usize> = (0..probabilities.len()).collect();
    classes.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    for class in &classes[..3] {
        println!("{class}  {:6.2} %", probabilities[*class] * 100.0);
    }
    assert!(probabilities[classes[0]] > 0.5, "the image shows no clear digit");
    Ok(())
}
