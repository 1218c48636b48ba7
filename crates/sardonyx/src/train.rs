//! Adds gradients and training information, which [`Trainer`](crate::Trainer) runs, to models.
//!
//! ```
//! use sardonyx::{Model, RunOptions, Tensor, Trainer, train};
//!
//! // y = x * w + b
//! let model = Model::from_text(
//!     "<ir_version: 10, opset_import: [\"\": 21]>
//!      g (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {0}, float[1] b = {0}> {
//!          y = Gemm (x, w, b)
//!      }",
//! )?;
//! let options = train::TrainingOptions::new(train::Loss::SquaredError { output: None })
//!     .optimizer(train::OptimizerKind::Sgd, 0.1);
//! let (trained, report) = model.add_training(&options)?;
//! assert_eq!(report.variables, [("w".to_string(), 1), ("b".to_string(), 1)]);
//!
//! let mut trainer = Trainer::new(&trained)?;
//! let x = Tensor::from_vec([4, 1], vec![-1f32, 0.0, 1.0, 2.0])?;
//! let target = Tensor::from_vec([4, 1], vec![-1f32, 1.0, 3.0, 5.0])?;
//! for _ in 0..200 {
//!     let inputs = [("x", x.clone()), ("target", target.clone())];
//!     trainer.step(0, inputs, &RunOptions::default())?;
//! }
//! let w: f32 = trainer.variable("w")?.item()?;
//! assert!((w - 2.0).abs() < 1e-2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[doc(inline)]
#[cfg(feature = "training")]
pub use crate::trainer::{DataPosition, StateVariable};
#[doc(inline)]
pub use crate::training::{GradientOptions, TrainingOptions};
#[doc(inline)]
pub use sardonyx_passes::{
    Clipping, GradientReport, Initialization, Loss, OptimizerKind, Skipped, TrainingReport,
};
