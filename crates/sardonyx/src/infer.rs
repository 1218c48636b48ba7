//! Infers types and shapes of all values of a model. Sizes may be symbolic expressions.
//!
//! ```
//! use sardonyx::{Model, infer};
//!
//! let mut model = Model::from_text(
//!     "<ir_version: 10, opset_import: [\"\": 21]>
//!      g (float[N, 4] x, float[M, 4] y) => (float[K, 4] z) {
//!          both = Concat <axis = 0> (x, y)
//!          flat = Flatten <axis = 0> (both)
//!          z = Relu (both)
//!      }",
//! )?;
//! let found = model.infer(&infer::InferOptions::new());
//! assert_eq!(found.ty(&model, "flat").unwrap().to_string(), "float[1, 4*M + 4*N]");
//! assert_eq!(found.values(&model).count(), 5);
//! model.add_types(&found);
//!
//! let found = model.infer(&infer::InferOptions::new().set("N", 2).set("M", 3));
//! assert_eq!(found.ty(&model, "flat").unwrap().to_string(), "float[1, 20]");
//! # Ok::<(), sardonyx::Error>(())
//! ```

#[doc(inline)]
pub use crate::inference::{InferOptions, Inferred, InferredValue};
