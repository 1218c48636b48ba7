//! Text generation, embeddings and classification with ONNX models.
//!
//! A directory as it lies on a hub has one or more model files, `config.json`, `tokenizer.json` and
//! often a chat template. This crate opens such a directory and runs the model with the engine of
//! the crate `sardonyx`: [`Generator`] continues texts, [`Embedder`] converts texts to vectors, and
//! [`Classifier`] gives labels, scores of pairs, or labelled spans. Nothing is downloaded.
//!
//! ```no_run
//! use sardonyx_generate::Generator;
//!
//! let generator = Generator::open("Qwen3-0.6B-ONNX")?;
//! let mut options = generator.options();
//! options.max_new_tokens = Some(40);
//! println!("{}", generator.generate("The capital of France is", &options)?.text);
//! # Ok::<(), sardonyx_generate::Error>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
// A test reports a failure by a panic.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod chat;
mod classifier;
mod config;
mod decoder;
mod embedder;
mod encoder;
mod error;
mod files;
mod generator;
mod key_values;
mod loading;
mod options;
mod processors;
mod sampling;
mod stream;
mod streaming;
mod summary;
mod tokenizer;

pub use chat::{ChatTemplate, Message};
pub use classifier::{Classifier, Label, Span};
pub use embedder::{EmbedOptions, Embedder, Pooling};
pub use error::Error;
pub use generator::{Generation, Generator, Prompt};
pub use loading::LoadOptions;
pub use options::{ContextLimit, GenerateOptions};
pub use stream::{FinishReason, Piece, TextStream, Timing, TokenLogprob};
pub use summary::{DirectoryKind, DirectorySummary};
pub use tokenizer::{Tokenizer, Tokens};
