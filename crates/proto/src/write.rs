//! The two-pass writer: the same code runs once to find the sizes of all messages and once to write them.
//!
//! Whoever writes a message implements [`Encode`] once. In the first pass the [`Encoder`] only adds up; the length of
//! every nested message goes into a list, which the second pass reads in the same order. So nothing is ever moved to
//! make room for a length, sizes are exact before the first byte, and large payloads go from their slice straight to
//! the destination.

use std::convert::Infallible;
use std::io::{self, IoSlice, Write};

use crate::error::Error;
use crate::kinds::{Kind, Message, Packed, Repeated, Scalar};
use crate::table::{Field, MessageType};
use crate::wire::{WireType, varint_len, write_varint};

/// Something that can be written as a message.
pub trait Encode {
    /// Writes the fields, in ascending order of numbers. Runs twice, and must do the same both times.
    fn encode(&self, out: &mut Encoder<'_>);
}

/// The exact sizes of a message and all messages in it.
#[derive(Debug, Clone, Default)]
pub struct Sizes {
    total: u64,
    /// Lengths of nested messages, in the order in which they begin.
    nested: Vec<u64>,
}

impl Sizes {
    /// Adds up the sizes of a message.
    pub fn of(message: &impl Encode) -> Self {
        let mut encoder = Encoder {
            pass: Pass::Measure(Sizes::default()),
        };
        message.encode(&mut encoder);
        encoder.into_sizes()
    }

    /// Length of the message in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// Receives the fields of a message, in either pass.
#[derive(Debug)]
pub struct Encoder<'w> {
    pass: Pass<'w>,
}

enum Pass<'w> {
    Measure(Sizes),
    Write(Output<'w>),
}

struct Output<'w> {
    sink: &'w mut dyn Write,
    /// Small things, collected.
    buffer: Vec<u8>,
    nested: std::vec::IntoIter<u64>,
    written: u64,
    /// The first failure; everything after it is dropped.
    failure: Option<io::Error>,
}

impl std::fmt::Debug for Pass<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Pass::Measure(_) => "Measure",
            Pass::Write(_) => "Write",
        })
    }
}

/// From this size on a payload is handed to the destination instead of being copied into the buffer.
const DIRECT_BYTES: usize = 8 << 10;
/// Size at which the buffer is handed over.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes a message into a new vector of exactly its size.
pub fn encode_to_vec(message: &impl Encode) -> Vec<u8> {
    let sizes = Sizes::of(message);
    let mut bytes = Vec::with_capacity(usize::try_from(sizes.total).unwrap_or(0));
    encode_sized(message, sizes, &mut bytes)
        .expect("a vector takes every byte, and both passes agree");
    bytes
}

/// Writes a message to `sink`, payloads straight from their slices. Returns the number of bytes.
///
/// # Errors
///
/// Those of `sink`.
pub fn encode_to_write(message: &impl Encode, sink: &mut dyn Write) -> io::Result<u64> {
    encode_sized(message, Sizes::of(message), sink)
}

fn encode_sized(message: &impl Encode, sizes: Sizes, sink: &mut dyn Write) -> io::Result<u64> {
    let total = sizes.total;
    let mut encoder = Encoder::writing(sizes, sink);
    message.encode(&mut encoder);
    let written = encoder.finish()?;
    if written != total {
        return Err(io::Error::other(format!(
            "the message was measured as {total} bytes but written as {written}"
        )));
    }
    Ok(written)
}

impl<'w> Encoder<'w> {
    pub(crate) fn measuring() -> Self {
        Encoder {
            pass: Pass::Measure(Sizes::default()),
        }
    }

    pub(crate) fn into_sizes(self) -> Sizes {
        match self.pass {
            Pass::Measure(sizes) => sizes,
            Pass::Write(_) => Sizes::default(),
        }
    }

    pub(crate) fn writing(sizes: Sizes, sink: &'w mut dyn Write) -> Self {
        Encoder {
            pass: Pass::Write(Output {
                sink,
                buffer: Vec::with_capacity(sizes.total.min(BUFFER_BYTES as u64) as usize),
                nested: sizes.nested.into_iter(),
                written: 0,
                failure: None,
            }),
        }
    }

    pub(crate) fn finish(self) -> io::Result<u64> {
        match self.pass {
            Pass::Measure(sizes) => Ok(sizes.total),
            Pass::Write(mut output) => {
                output.hand_over(&[]);
                match output.failure {
                    Some(failure) => Err(failure),
                    None => Ok(output.written),
                }
            }
        }
    }

    /// A field that occurs once: a number, a text, bytes.
    #[inline]
    pub fn put<F: Field>(&mut self, _field: F, value: <F::Kind as Put>::Input<'_>)
    where
        F::Kind: Put,
    {
        <F::Kind as Put>::put(F::NUMBER, value, self);
    }

    /// The same for a field that may be absent.
    #[inline]
    pub fn put_some<F: Field>(&mut self, field: F, value: Option<<F::Kind as Put>::Input<'_>>)
    where
        F::Kind: Put,
    {
        if let Some(value) = value {
            self.put(field, value);
        }
    }

    /// A nested message, whose fields `body` writes.
    pub fn message<F: Field<Kind: MessageKind>>(
        &mut self,
        _field: F,
        body: impl FnOnce(&mut Self),
    ) {
        let done: Result<(), Infallible> = self.message_field(F::NUMBER, |out| {
            body(out);
            Ok(())
        });
        let Ok(()) = done;
    }

    /// A nested message that is ready as it is.
    pub fn encode<F: Field<Kind: MessageKind>>(&mut self, field: F, message: &impl Encode) {
        self.message(field, |out| message.encode(out));
    }

    /// A packed block of numbers that is ready as it is.
    pub fn packed_block<S: Scalar, F: Field<Kind = Packed<S>>>(&mut self, _field: F, block: &[u8]) {
        self.bytes_field(F::NUMBER, block);
    }

    /// A whole record, tag included, that was read as unknown.
    pub fn unknown(&mut self, record: &[u8]) {
        self.raw(record);
    }

    pub(crate) fn message_field<E>(
        &mut self,
        number: u32,
        body: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let outer = match &mut self.pass {
            Pass::Measure(sizes) => {
                sizes.nested.push(0);
                Some((sizes.nested.len() - 1, std::mem::take(&mut sizes.total)))
            }
            Pass::Write(_) => None,
        };
        match outer {
            Some((index, before)) => {
                body(self)?;
                if let Pass::Measure(sizes) = &mut self.pass {
                    let length = sizes.total;
                    sizes.nested[index] = length;
                    sizes.total = before;
                    self.head(number, WireType::Len, Some(length));
                    if let Pass::Measure(sizes) = &mut self.pass {
                        sizes.total += length;
                    }
                }
                Ok(())
            }
            None => {
                let length = match &mut self.pass {
                    Pass::Write(output) => output.nested.next().unwrap_or(0),
                    Pass::Measure(_) => 0,
                };
                self.head(number, WireType::Len, Some(length));
                body(self)
            }
        }
    }

    #[inline]
    pub(crate) fn word_field(&mut self, number: u32, wire_type: WireType, word: u64) {
        match wire_type {
            WireType::Fixed32 => {
                self.head(number, wire_type, None);
                self.raw(&(word as u32).to_le_bytes());
            }
            WireType::Fixed64 => {
                self.head(number, wire_type, None);
                self.raw(&word.to_le_bytes());
            }
            _ => self.head(number, wire_type, Some(word)),
        }
    }

    pub(crate) fn bytes_field(&mut self, number: u32, bytes: &[u8]) {
        self.head(number, WireType::Len, Some(bytes.len() as u64));
        self.raw(bytes);
    }

    /// A tag and, after it, a varint.
    fn head(&mut self, number: u32, wire_type: WireType, varint: Option<u64>) {
        let tag = u64::from(number << 3 | wire_type.number());
        match &mut self.pass {
            Pass::Measure(sizes) => sizes.total += varint_len(tag) + varint.map_or(0, varint_len),
            Pass::Write(output) => {
                for value in [Some(tag), varint].into_iter().flatten() {
                    let mut bytes = [0; 10];
                    let len = write_varint(&mut bytes, value);
                    output.put(&bytes[..len]);
                }
            }
        }
    }

    fn raw(&mut self, bytes: &[u8]) {
        match &mut self.pass {
            Pass::Measure(sizes) => sizes.total += bytes.len() as u64,
            Pass::Write(output) => output.put(bytes),
        }
    }
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() >= DIRECT_BYTES {
            self.hand_over(bytes);
        } else {
            if self.buffer.len() + bytes.len() > BUFFER_BYTES {
                self.hand_over(&[]);
            }
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Writes the buffer and a payload after it.
    fn hand_over(&mut self, payload: &[u8]) {
        let mut slices = [IoSlice::new(&self.buffer), IoSlice::new(payload)];
        let mut rest = &mut slices[..];
        // Drops the empty slices at the front, so that "wrote nothing" below means failure.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() && self.failure.is_none() {
            match self.sink.write_vectored(rest) {
                Ok(0) => self.failure = Some(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.written += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.failure = Some(error),
            }
        }
        self.buffer.clear();
    }
}

/// Kinds that can be written from a plain value.
pub trait Put: Kind {
    /// What the writer takes.
    type Input<'a>;
    #[doc(hidden)]
    fn put(number: u32, value: Self::Input<'_>, out: &mut Encoder<'_>);
}

/// Kinds that are messages.
pub trait MessageKind: Kind {}

mod put {
    //! Which plain value each kind takes.

    use super::*;
    use crate::kinds::{
        Blob, Double, Enum, Float, Int32, Int64, OneOf, OpenEnum, Optional, Text, Uint64,
    };

    macro_rules! numbers {
        ($($name:ty),*) => { $(
            impl Put for Optional<$name> {
                type Input<'a> = <$name as Scalar>::Item;
                fn put(number: u32, value: Self::Input<'_>, out: &mut Encoder<'_>) {
                    out.word_field(number, <$name>::WIRE_TYPE, <$name>::to_word(value));
                }
            }
            impl Put for Repeated<$name> {
                type Input<'a> = &'a [<$name as Scalar>::Item];
                fn put(number: u32, values: Self::Input<'_>, out: &mut Encoder<'_>) {
                    for value in values {
                        out.word_field(number, <$name>::WIRE_TYPE, <$name>::to_word(*value));
                    }
                }
            }
        )* };
    }
    numbers!(Int64, Int32, Uint64, Float, Double);

    impl Put for OneOf<Int64> {
        type Input<'a> = i64;
        fn put(number: u32, value: i64, out: &mut Encoder<'_>) {
            out.word_field(number, WireType::Varint, value as u64);
        }
    }

    impl<E: OpenEnum> Put for Optional<Enum<E>> {
        type Input<'a> = E;
        fn put(number: u32, value: E, out: &mut Encoder<'_>) {
            out.word_field(number, WireType::Varint, Enum::<E>::to_word(value));
        }
    }

    macro_rules! slices {
        ($($kind:ty),*) => { $(
            impl Put for $kind {
                type Input<'a> = &'a [u8];
                fn put(number: u32, value: &[u8], out: &mut Encoder<'_>) {
                    out.bytes_field(number, value);
                }
            }
        )* };
    }
    // A repeated text or blob is put once per element.
    slices!(
        Optional<Text>,
        Optional<Blob>,
        OneOf<Text>,
        Repeated<Text>,
        Repeated<Blob>
    );

    impl<M: MessageType> MessageKind for Optional<Message<M>> {}
    impl<M: MessageType> MessageKind for OneOf<Message<M>> {}
    impl<M: MessageType> MessageKind for Repeated<Message<M>> {}
}

/// Runs `body` in both passes and gives the bytes; the fallible twin of [`encode_to_vec`].
pub(crate) fn try_encode_to_vec(
    body: impl Fn(&mut Encoder<'_>) -> Result<(), Error>,
) -> Result<Vec<u8>, Error> {
    let mut measure = Encoder::measuring();
    body(&mut measure)?;
    let sizes = measure.into_sizes();
    let mut bytes = Vec::with_capacity(usize::try_from(sizes.total).unwrap_or(0));
    let mut encoder = Encoder::writing(sizes, &mut bytes);
    body(&mut encoder)?;
    encoder.finish().expect("a vector takes every byte");
    Ok(bytes)
}
