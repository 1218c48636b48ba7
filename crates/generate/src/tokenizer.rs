//! Texts to tokens and back, by `tokenizer.json`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use sardonyx::ErrorKind;
use tokenizers::{Encoding, TruncationDirection, TruncationParams, TruncationStrategy};

use crate::error::Error;
use crate::files::{Files, MAX_TOKENIZER, read_bounded};

/// Tokenizer of a directory.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

/// Tokens of a text or of a pair of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tokens {
    /// Numbers of the tokens.
    pub ids: Vec<u32>,
    /// 0 for tokens of the first text, 1 for those of the second.
    pub type_ids: Vec<u32>,
    /// Byte ranges of the tokens in their text; empty for special tokens.
    pub offsets: Vec<(usize, usize)>,
    /// Number of the word of each token; `None` for special tokens.
    pub words: Vec<Option<u32>>,
}

/// Maximum length of a text in bytes: tokenizers need about 100 times the memory of a text.
const MAX_TEXT: usize = 16 << 20;

impl Tokenizer {
    /// Reads the tokenizer of a directory.
    pub(crate) fn read(files: &Files) -> Result<Tokenizer, Error> {
        let (path, bytes) = files.read_tokenizer()?;
        Tokenizer::from_bytes(&bytes).map_err(|error| error.at(&path))
    }

    /// Reads the file `tokenizer.json` at `path`.
    ///
    /// # Errors
    ///
    /// If the file does not exist, has more than 256 MiB, or does not describe a tokenizer.
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer, Error> {
        let path = path.as_ref();
        let bytes = read_bounded(path, MAX_TOKENIZER)?;
        Tokenizer::from_bytes(&bytes).map_err(|error| error.at(path))
    }

    /// Reads a tokenizer from the content of a file `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// If the bytes do not describe a tokenizer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Tokenizer, Error> {
        let read = || tokenizers::Tokenizer::from_bytes(bytes);
        let mut inner = call("reading the tokenizer", read)?;
        // Lengths are the caller's: files of encoders pad every text to one length.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|error| Error::new(ErrorKind::Format, error.to_string()))?;
        Ok(Tokenizer { inner })
    }

    /// Bounds the number of tokens of a text, special tokens included. The end of the longer text
    /// of a pair is cut first.
    pub(crate) fn truncate_to(&mut self, max_length: usize) -> Result<(), Error> {
        let truncation = TruncationParams {
            direction: TruncationDirection::Right,
            max_length,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
        };
        let set = self.inner.with_truncation(Some(truncation)).map(|_| ());
        set.map_err(|error| Error::argument(format!("`max_length`: {error}")))
    }

    /// Converts a text to tokens. Special tokens written in the text are recognized.
    ///
    /// # Errors
    ///
    /// If the text has more than 16 MiB, or the tokenizer fails.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Tokens, Error> {
        check_length(text)?;
        let encode = || self.inner.encode(text, add_special_tokens);
        Ok(Tokens::from_encoding(&call("tokenizing", encode)?))
    }

    /// Converts a pair of texts to the tokens of one sequence.
    ///
    /// # Errors
    ///
    /// If a text has more than 16 MiB, or the tokenizer fails.
    pub fn encode_pair(
        &self,
        first: &str,
        second: &str,
        add_special_tokens: bool,
    ) -> Result<Tokens, Error> {
        check_length(first)?;
        check_length(second)?;
        let encode = || self.inner.encode((first, second), add_special_tokens);
        Ok(Tokens::from_encoding(&call("tokenizing", encode)?))
    }

    /// Converts tokens to a text. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    ///
    /// If the tokenizer fails. Unknown tokens are left out.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, Error> {
        call("decoding tokens", || self.inner.decode(ids, skip_special_tokens))
    }

    /// Returns the number of a token; `None` if the tokenizer does not have it.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns the token with a number, as it is written in the file.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Returns the number of tokens, with those added to the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish()
    }
}

impl Tokens {
    fn from_encoding(encoding: &Encoding) -> Tokens {
        Tokens {
            ids: encoding.get_ids().to_vec(),
            type_ids: encoding.get_type_ids().to_vec(),
            offsets: encoding.get_offsets().to_vec(),
            words: encoding.get_word_ids().to_vec(),
        }
    }
}

fn check_length(text: &str) -> Result<(), Error> {
    if text.len() <= MAX_TEXT {
        return Ok(());
    }
    let message = format!("a text has {} bytes, more than {MAX_TEXT}", text.len());
    Err(Error::argument(message))
}

/// Calls the crate `tokenizers`, whose panics on contradicting files become errors.
fn call<T>(what: &str, job: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(job)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Error::new(ErrorKind::Format, format!("{what}: {error}"))),
        Err(_) => {
            let message = format!("{what} failed: tokenizer.json contradicts itself");
            Err(Error::new(ErrorKind::Format, message))
        }
    }
}
