//! The writer: one pass over the message, without copies of long payloads.
//!
//! A message type implements [`Encode`] once. The [`Encoder`] appends small fields to one buffer
//! and only records the positions of long payloads. A nested message begins with room for a length
//! of one byte, which is enough for nearly all. If it is not, the small fields of that message move
//! up or, if they are many, the rest of the length is recorded as a piece, like a payload. So names
//! are looked up once, a gigabyte of weights is written from its slice to the destination, and the
//! length of the whole is known before its first byte is written.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, IoSlice, Write};

use crate::error::Error;
use crate::kinds::{FieldCodec, Message, Packed, Repeated, Scalar};
use crate::table::{Field, MessageType};
use crate::wire::{Varint, WireType};

/// Value that can be written as a message.
pub trait Encode {
    /// Writes the fields, in ascending order of numbers.
    fn encode<'a>(&'a self, out: &mut Encoder<'a>);
}

/// Collects the fields of a message.
#[derive(Default)]
pub struct Encoder<'a> {
    /// Small fields, tags and lengths.
    bytes: Vec<u8>,
    pieces: Vec<Piece<'a>>,
    /// Total length of all pieces, in bytes.
    piece_bytes: u64,
    /// Number of bytes that were moved to make room for lengths.
    moved: usize,
}

/// Bytes that are inserted between the small fields.
#[derive(Clone, Copy)]
struct Piece<'a> {
    /// Number of bytes of the buffer that precede it.
    position: usize,
    content: Content<'a>,
}

#[derive(Clone, Copy)]
enum Content<'a> {
    /// Long content that is not copied.
    Payload(&'a [u8]),
    /// Bytes of a length after the first one, none of which is zero, padded with zeros.
    Length([u8; 9]),
}

impl Content<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Content::Payload(bytes) => bytes,
            Content::Length(bytes) => {
                let zeros = bytes.iter().rev().take_while(|byte| **byte == 0);
                &bytes[..bytes.len() - zeros.count()]
            }
        }
    }
}

/// Size in bytes from which content is not copied; for less, a copy is cheaper than a record of it.
const PAYLOAD_BYTES: usize = 1 << 10;
/// Size in bytes from which the content of a message does not move to make room for its length.
const UNMOVED_BYTES: usize = 64 << 10;

/// Average number of moves per byte up to which the contents of smaller messages move. Without a
/// limit, deeply nested messages would move the same bytes once per level.
const MOST_MOVES: usize = 4;

/// Encoded message: a list of slices, of which the large ones are borrowed from the message.
pub struct Encoded<'a>(Encoder<'a>);

/// Encodes a message into a new vector of exactly its size.
pub fn encode_to_vec(message: &impl Encode) -> Vec<u8> {
    Encoded::new(message).into_vec()
}

/// Encodes a message into `sink`, payloads directly from their slices. Returns the number of bytes.
///
/// # Errors
///
/// An error of `sink`.
pub fn encode_to_write(message: &impl Encode, sink: &mut dyn Write) -> io::Result<u64> {
    Encoded::new(message).write_to(sink)
}

impl<'a> Encoded<'a> {
    /// Encodes a message.
    pub fn new(message: &'a impl Encode) -> Self {
        Encoded::from_fields(|out| message.encode(out))
    }

    /// Encodes the fields that `body` writes as one message.
    pub fn from_fields(body: impl FnOnce(&mut Encoder<'a>)) -> Self {
        let mut encoder = Encoder::default();
        body(&mut encoder);
        Encoded::from_encoder(encoder)
    }

    fn from_encoder(mut encoder: Encoder<'a>) -> Self {
        // A length is recorded after the content of its message, but precedes all of it.
        encoder.pieces.sort_by_key(|piece| {
            let is_payload = matches!(piece.content, Content::Payload(_));
            (piece.position, is_payload)
        });
        Encoded(encoder)
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.len() as u64 + self.0.piece_bytes
    }

    /// Returns the message in pieces.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let Encoder { bytes, pieces, .. } = &self.0;
        let ends = pieces.iter().map(|piece| piece.position);
        let begins = std::iter::once(0).chain(ends.clone());
        let small = begins.zip(ends.chain([bytes.len()])).map(|(begin, end)| &bytes[begin..end]);
        let long = pieces.iter().map(|piece| piece.content.bytes()).chain([&[][..]]);
        let all = small.zip(long).flat_map(|(small, long)| [small, long]);
        all.filter(|slice| !slice.is_empty())
    }

    /// Returns the message as one vector of exactly its size.
    pub fn into_vec(self) -> Vec<u8> {
        let is_length = |piece: &Piece<'_>| matches!(piece.content, Content::Length(_));
        if self.0.pieces.iter().all(is_length) {
            return self.insert_lengths();
        }
        let mut whole = Vec::with_capacity(usize::try_from(self.bytes()).unwrap_or(0));
        for slice in self.slices() {
            whole.extend_from_slice(slice);
        }
        whole
    }

    /// Inserts the lengths of a message without payloads. Works from the end, so that each byte
    /// moves once.
    fn insert_lengths(self) -> Vec<u8> {
        let Encoder { mut bytes, pieces, piece_bytes, .. } = self.0;
        let mut end = bytes.len();
        let mut free = end + piece_bytes as usize;
        bytes.resize(free, 0);
        for piece in pieces.iter().rev() {
            let content = piece.content.bytes();
            free -= end - piece.position;
            bytes.copy_within(piece.position..end, free);
            end = piece.position;
            free -= content.len();
            bytes[free..free + content.len()].copy_from_slice(content);
        }
        bytes.shrink_to_fit();
        bytes
    }

    /// Writes the message to `sink`, payloads directly from their slices. Returns the number of
    /// bytes.
    ///
    /// # Errors
    ///
    /// An error of `sink`.
    pub fn write_to(&self, sink: &mut dyn Write) -> io::Result<u64> {
        // Maximum number of slices that one system call takes.
        const MOST: usize = 1024;
        let mut left: Vec<IoSlice<'_>> = Vec::new();
        let mut slices = self.slices().peekable();
        while slices.peek().is_some() {
            left.clear();
            left.extend(slices.by_ref().take(MOST).map(IoSlice::new));
            write_all(sink, &mut left)?;
        }
        Ok(self.bytes())
    }
}

fn write_all(sink: &mut dyn Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match sink.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl fmt::Debug for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Encoder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, pieces) = (self.bytes.len(), self.pieces.len());
        write!(f, "{bytes} bytes and {pieces} pieces")
    }
}

impl<'a> Encoder<'a> {
    /// Reserves capacity for `bytes` bytes of small fields, which avoids reallocations.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Writes a field that occurs once: a number, a text or bytes.
    #[inline]
    pub fn put<F: Field>(&mut self, _field: F, value: <F::Codec as Put>::Input<'_>)
    where
        F::Codec: Put,
    {
        <F::Codec as Put>::put(F::NUMBER, value, self);
    }

    /// Writes a field that occurs once, if it has a value.
    #[inline]
    pub fn put_some<F: Field>(&mut self, field: F, value: Option<<F::Codec as Put>::Input<'_>>)
    where
        F::Codec: Put,
    {
        if let Some(value) = value {
            self.put(field, value);
        }
    }

    /// Writes a field of bytes, which are borrowed rather than copied if they are long.
    pub fn put_payload<F>(&mut self, _field: F, bytes: &'a [u8])
    where
        F: Field<Codec: for<'b> Put<Input<'b> = &'b [u8]>>,
    {
        self.push_payload(F::NUMBER, bytes);
    }

    /// Writes a nested message with the fields that `body` writes.
    #[inline]
    pub fn put_message<F: Field<Codec: MessageCodec>>(
        &mut self,
        _field: F,
        body: impl FnOnce(&mut Self),
    ) {
        let done: Result<(), Infallible> = self.push_message(F::NUMBER, |out| {
            body(out);
            Ok(())
        });
        let Ok(()) = done;
    }

    /// Writes a nested message from a value.
    pub fn encode<F: Field<Codec: MessageCodec>>(&mut self, field: F, message: &'a impl Encode) {
        self.put_message(field, |out| message.encode(out));
    }

    /// Writes a packed list of numbers that is already encoded.
    pub fn put_packed<S: Scalar, F: Field<Codec = Packed<S>>>(
        &mut self,
        _field: F,
        block: &'a [u8],
    ) {
        self.push_payload(F::NUMBER, block);
    }

    /// Writes encoded records, including their tags.
    pub fn put_records(&mut self, records: &'a [u8]) {
        if records.len() < PAYLOAD_BYTES {
            self.bytes.extend_from_slice(records);
        } else {
            self.push_piece(self.bytes.len(), Content::Payload(records));
        }
    }

    /// Writes encoded records that do not outlive the encoder.
    pub fn copy_records(&mut self, records: &[u8]) {
        self.bytes.extend_from_slice(records);
    }

    #[inline]
    pub(crate) fn push_message<E>(
        &mut self,
        number: u32,
        body: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.push_head(number, WireType::Len, 0);
        let begin = self.bytes.len();
        let (first, before) = (self.pieces.len(), self.piece_bytes);
        body(self)?;
        let length = (self.bytes.len() - begin) as u64 + (self.piece_bytes - before);
        if length < 0x80 {
            self.bytes[begin - 1] = length as u8;
        } else {
            self.insert_long_length(length, begin, first);
        }
        Ok(())
    }

    /// Inserts a length that takes more than one byte, before the small fields from `begin` on and
    /// the pieces from `first` on.
    fn insert_long_length(&mut self, length: u64, begin: usize, first: usize) {
        let varint = Varint::new(length);
        let varint = varint.as_bytes();
        let more = varint.len() - 1;
        let end = self.bytes.len();
        self.bytes[begin - 1] = varint[0];
        // Pieces move as well, and each costs as much as a few bytes.
        let moves = end - begin + size_of::<Piece<'_>>() * (self.pieces.len() - first);
        if moves >= UNMOVED_BYTES || self.moved + moves > MOST_MOVES * (end + UNMOVED_BYTES) {
            let mut rest = [0; 9];
            rest[..more].copy_from_slice(&varint[1..]);
            return self.push_piece(begin, Content::Length(rest));
        }
        self.moved += moves;
        self.bytes.extend_from_slice(&[0; 10][..more]);
        self.bytes.copy_within(begin..end, begin + more);
        self.bytes[begin..begin + more].copy_from_slice(&varint[1..]);
        for piece in &mut self.pieces[first..] {
            piece.position += more;
        }
    }

    fn push_piece(&mut self, position: usize, content: Content<'a>) {
        self.piece_bytes += content.bytes().len() as u64;
        self.pieces.push(Piece { position, content });
    }

    #[inline(always)]
    pub(crate) fn push_word(&mut self, number: u32, wire_type: WireType, word: u64) {
        match wire_type {
            WireType::Fixed32 => {
                self.push_tag(number, wire_type);
                self.bytes.extend_from_slice(&(word as u32).to_le_bytes());
            }
            WireType::Fixed64 => {
                self.push_tag(number, wire_type);
                self.bytes.extend_from_slice(&word.to_le_bytes());
            }
            _ => self.push_head(number, wire_type, word),
        }
    }

    #[inline]
    pub(crate) fn push_bytes(&mut self, number: u32, bytes: &[u8]) {
        self.push_head(number, WireType::Len, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn push_payload(&mut self, number: u32, bytes: &'a [u8]) {
        self.push_head(number, WireType::Len, bytes.len() as u64);
        self.put_records(bytes);
    }

    /// Appends a tag and a varint.
    // Inlined, as the field number is a constant at each call and nearly all varints take one byte.
    #[inline(always)]
    fn push_head(&mut self, number: u32, wire_type: WireType, varint: u64) {
        let tag = number << 3 | wire_type.number();
        match (tag, varint) {
            (..0x80, ..0x80) => self.bytes.extend_from_slice(&[tag as u8, varint as u8]),
            (0x80..0x4000, ..0x80) => {
                let tag = [tag as u8 | 0x80, (tag >> 7) as u8];
                self.bytes.extend_from_slice(&[tag[0], tag[1], varint as u8]);
            }
            _ => self.push_long_head(tag, varint),
        }
    }

    #[inline(never)]
    fn push_long_head(&mut self, tag: u32, varint: u64) {
        for value in [u64::from(tag), varint] {
            self.push_varint(value);
        }
    }

    fn push_tag(&mut self, number: u32, wire_type: WireType) {
        self.push_varint(u64::from(number << 3 | wire_type.number()));
    }

    fn push_varint(&mut self, value: u64) {
        self.bytes.extend_from_slice(Varint::new(value).as_bytes());
    }
}

/// Codec that can write a plain value.
pub trait Put: FieldCodec {
    /// Value that the writer takes.
    type Input<'a>;
    #[doc(hidden)]
    fn put(number: u32, value: Self::Input<'_>, out: &mut Encoder<'_>);
}

/// Codec of nested messages.
pub trait MessageCodec: FieldCodec {}

mod put {
    //! Implements [`Put`] for the codecs.

    use super::*;
    use crate::kinds::{
        Blob, Double, Enum, Float, Int32, Int64, OneOf, OpenEnum, Optional, Text, Uint64,
    };

    macro_rules! numbers {
        ($($name:ty),*) => { $(
            impl Put for Optional<$name> {
                type Input<'a> = <$name as Scalar>::Item;
                fn put(number: u32, value: Self::Input<'_>, out: &mut Encoder<'_>) {
                    out.push_word(number, <$name>::WIRE_TYPE, <$name>::to_word(value));
                }
            }
            impl Put for Repeated<$name> {
                type Input<'a> = &'a [<$name as Scalar>::Item];
                fn put(number: u32, values: Self::Input<'_>, out: &mut Encoder<'_>) {
                    for value in values {
                        out.push_word(number, <$name>::WIRE_TYPE, <$name>::to_word(*value));
                    }
                }
            }
        )* };
    }
    numbers!(Int64, Int32, Uint64, Float, Double);

    impl Put for OneOf<Int64> {
        type Input<'a> = i64;
        fn put(number: u32, value: i64, out: &mut Encoder<'_>) {
            out.push_word(number, WireType::Varint, value as u64);
        }
    }

    impl<E: OpenEnum> Put for Optional<Enum<E>> {
        type Input<'a> = E;
        fn put(number: u32, value: E, out: &mut Encoder<'_>) {
            out.push_word(number, WireType::Varint, Enum::<E>::to_word(value));
        }
    }

    macro_rules! slices {
        ($($kind:ty),*) => { $(
            impl Put for $kind {
                type Input<'a> = &'a [u8];
                fn put(number: u32, value: &[u8], out: &mut Encoder<'_>) {
                    out.push_bytes(number, value);
                }
            }
        )* };
    }
    // Each element of a repeated text or blob is written by its own call.
    slices!(Optional<Text>, Optional<Blob>, OneOf<Text>, Repeated<Text>, Repeated<Blob>);

    impl<M: MessageType> MessageCodec for Optional<Message<M>> {}
    impl<M: MessageType> MessageCodec for OneOf<Message<M>> {}
    impl<M: MessageType> MessageCodec for Repeated<Message<M>> {}
}

/// Returns the encoding of the fields that `body` writes; the fallible counterpart of
/// [`encode_to_vec`].
pub(crate) fn try_encode_to_vec<'a>(
    body: impl FnOnce(&mut Encoder<'a>) -> Result<(), Error>,
) -> Result<Vec<u8>, Error> {
    let mut encoder = Encoder::default();
    body(&mut encoder)?;
    Ok(Encoded::from_encoder(encoder).into_vec())
}
