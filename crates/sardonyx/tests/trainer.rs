//! Tests of trainers, which run the training information of a model.

mod files;
mod initialization;
mod refusals;
mod steps;
mod updates;
mod variables;

use sardonyx::{Error, Model, Outputs, Tensor, Trainer};

fn model(text: &str) -> Model {
    let head = "<notation: \"full\", ir_version: 10,
                 opset_import: [\"\": 21, \"ai.onnx.preview.training\": 1, \"local\": 1]>";
    Model::from_text(&format!("{head} {text}")).expect("the text is a model")
}

fn trainer(text: &str) -> Trainer {
    Trainer::new(&model(text)).expect("the model can be trained")
}

fn expect_refusal(text: &str) -> Error {
    Trainer::new(&model(text)).expect_err("no trainer")
}

fn vector(elements: &[f32]) -> Tensor {
    Tensor::from_vec([elements.len()], elements.to_vec()).expect("a vector")
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec::<f32>().expect("of float")
}

/// Returns the elements of a state variable.
fn value_of(trainer: &Trainer, name: &str) -> Vec<f32> {
    numbers(&trainer.variable(name).expect("a state variable"))
}

/// Returns the bytes of all state variables, for comparing states exactly.
fn bits(trainer: &Trainer) -> Vec<(String, Vec<u8>)> {
    let state = trainer.state().expect("the state").into_iter();
    state.map(|(name, value)| (name.to_string(), value.bytes().to_vec())).collect()
}

fn output(outputs: &Outputs, name: &str) -> Vec<f32> {
    numbers(outputs.tensor(name).expect("an output"))
}

fn no_inputs() -> [(&'static str, Tensor); 0] {
    []
}

fn x(elements: &[f32]) -> [(&'static str, Tensor); 1] {
    [("x", vector(elements))]
}

/// Model y = x * w with gradient descent towards a target at the learning rate 0.5.
const DESCENT: &str = "
    g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] frozen = {3, 4}> {
        y = Mul (x, w)
    }
    @<training_info: [{
        initialization: init () => (float[2] w0) {
            w0 = Constant <value_floats: floats = [5.0, 6.0]> ()
        },
        algorithm: descent (float[2] target) => (float loss, float[2] w1)
          <float[2] rate = {0.5, 0.5}> {
            d = Sub (y, target)
            s = Mul (d, d)
            loss = ReduceSum <keepdims: int = 0> (s)
            slope = Mul (x, d)
            change = Mul (slope, rate)
            w1 = Sub (w, change)
        },
        initialization_binding: [\"w\": \"w0\"],
        update_binding: [\"w\": \"w1\"]
    }]>";

fn descent_data() -> Vec<(&'static str, Tensor)> {
    vec![("x", vector(&[1.0, 2.0])), ("target", vector(&[0.0, 0.0]))]
}

/// Model with two entries: the first adds one to `w`, the second doubles it.
const ADD_AND_DOUBLE: &str = "
    g (float x) => (float y) <float w = {3}> { y = Mul (x, w) }
    @<training_info: [
        {
            algorithm: add () => (float added) {
                one = Constant <value_float: float = 1.0> ()
                added = Add (w, one)
            },
            update_binding: [\"w\": \"added\"]
        },
        {
            algorithm: double () => (float doubled) { doubled = Add (w, w) },
            update_binding: [\"w\": \"doubled\"]
        }
    ]>";

/// Model whose initialization, steps and inference draw random numbers.
const RANDOM: &str = "
    g (float[4] x) => (float[4] y, float[4] noise) <float[4] w = {0, 0, 0, 0}> {
        y = Mul (x, w)
        noise = RandomNormalLike (x)
    }
    @<training_info: [{
        initialization: init () => (float[4] w0) { w0 = RandomNormal <shape: ints = [4]> () },
        algorithm: step () => (float[4] w1) {
            step_noise = RandomUniformLike (w)
            w1 = Add (w, step_noise)
        },
        initialization_binding: [\"w\": \"w0\"],
        update_binding: [\"w\": \"w1\"]
    }]>";
