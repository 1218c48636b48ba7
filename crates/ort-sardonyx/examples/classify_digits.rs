//! Reads the digits of small images with `ort`, on Sardonyx.

use ort::session::Session;
use ort::value::Tensor;

fn main() -> ort::Result<()> {
    ort::set_api(ort_sardonyx::api());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    let environment = ort::init().build()?;
    let mut session = Session::builder(&environment)?.commit_from_file(path)?;
    let images = Tensor::from_array(([2usize, 1, 8, 8], vec![0.5f32; 2 * 64]))?;
    let outputs = session.run(ort::inputs!["image" => images])?;
    let (shape, probabilities) = outputs["probabilities"].try_extract_tensor::<f32>()?;
    for row in probabilities.chunks(10) {
        let digit = row.iter().enumerate().max_by(|one, other| one.1.total_cmp(other.1));
        println!("{} of {shape}", digit.map_or(0, |(digit, _)| digit));
    }
    Ok(())
}
