//! The writer: one pass over what is written, nothing copied that is long.
//!
//! Whoever writes a message implements [`Encode`] once. The [`Encoder`] puts small things one
//! after the other and only notes where long payloads belong. A nested message begins with room
//! for a length of one byte, which is enough for nearly all; where it is not, the small things of
//! that message move up, or, if they are many, the rest of the length is noted like a payload. So
//! names are looked up once, and a gigabyte of weights goes from its slice straight to the
//! destination. The length of the whole is known before its first byte leaves.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, IoSlice, Write};

use crate::error::Error;
use crate::kinds::{Kind, Message, Packed, Repeated, Scalar};
use crate::table::{Field, MessageType};
use crate::wire::{WireType, write_varint};

/// Something that can be written as a message.
pub trait Encode {
    /// Writes the fields, in ascending order of numbers.
    fn encode<'a>(&'a self, out: &mut Encoder<'a>);
}

/// Receives the fields of a message.
#[derive(Default)]
pub struct Encoder<'a> {
    /// All that is not long.
    bytes: Vec<u8>,
    pieces: Vec<Piece<'a>>,
    /// The length of all pieces.
    piece_bytes: u64,
    /// How many bytes moved to make room for lengths.
    moved: usize,
}

/// What is not among the other bytes.
#[derive(Clone, Copy)]
struct Piece<'a> {
    /// How many of the other bytes stand before it.
    position: usize,
    content: Content<'a>,
}

#[derive(Clone, Copy)]
enum Content<'a> {
    /// Something long that stays where it is.
    Payload(&'a [u8]),
    /// The bytes of a length after the first one, none of which is zero, and then zeros.
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

/// From this size on something stays where it is; below, a copy takes less than the note.
const PAYLOAD_BYTES: usize = 1 << 10;

/// From this size on what is in a message does not move to make room for its length, and smaller
/// messages do so no more than this often for each byte: those that are nested deeply would move
/// the same bytes again and again.
const UNMOVED_BYTES: usize = 64 << 10;
const MOST_MOVES: usize = 4;

/// A message as it goes into a file: a few long slices, of which the large ones lie where they
/// were.
pub struct Encoded<'a>(Encoder<'a>);

/// Writes a message into a new vector of exactly its size.
pub fn encode_to_vec(message: &impl Encode) -> Vec<u8> {
    Encoded::of(message).into_vec()
}

/// Writes a message to `sink`, payloads straight from their slices. Returns the number of bytes.
///
/// # Errors
///
/// Those of `sink`.
pub fn encode_to_write(message: &impl Encode, sink: &mut dyn Write) -> io::Result<u64> {
    Encoded::of(message).write_to(sink)
}

impl<'a> Encoded<'a> {
    /// Encodes a message.
    pub fn of(message: &'a impl Encode) -> Self {
        Encoded::by(|out| message.encode(out))
    }

    /// The message of whatever fields `body` writes.
    pub fn by(body: impl FnOnce(&mut Encoder<'a>)) -> Self {
        let mut encoder = Encoder::default();
        body(&mut encoder);
        Encoded::from(encoder)
    }

    fn from(mut encoder: Encoder<'a>) -> Self {
        // A length is noted after what is in the message, but stands before all of it.
        encoder.pieces.sort_by_key(|piece| {
            let is_payload = matches!(piece.content, Content::Payload(_));
            (piece.position, is_payload)
        });
        Encoded(encoder)
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.len() as u64 + self.0.piece_bytes
    }

    /// The message in pieces.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let Encoder { bytes, pieces, .. } = &self.0;
        let ends = pieces.iter().map(|piece| piece.position);
        let begins = std::iter::once(0).chain(ends.clone());
        let small = begins.zip(ends.chain([bytes.len()])).map(|(begin, end)| &bytes[begin..end]);
        let long = pieces.iter().map(|piece| piece.content.bytes()).chain([&[][..]]);
        let all = small.zip(long).flat_map(|(small, long)| [small, long]);
        all.filter(|slice| !slice.is_empty())
    }

    /// The message as one vector of exactly its size.
    pub fn into_vec(self) -> Vec<u8> {
        let is_length = |piece: &Piece<'_>| matches!(piece.content, Content::Length(_));
        if self.0.pieces.iter().all(is_length) {
            return self.with_lengths();
        }
        let mut whole = Vec::with_capacity(usize::try_from(self.bytes()).unwrap_or(0));
        for slice in self.slices() {
            whole.extend_from_slice(slice);
        }
        whole
    }

    /// The same if there are no payloads: from the end on, each byte moves to its place once.
    fn with_lengths(self) -> Vec<u8> {
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

    /// Writes the message, payloads straight from where they lie. Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// Those of `sink`.
    pub fn write_to(&self, sink: &mut dyn Write) -> io::Result<u64> {
        // As many as a system call takes.
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
    /// Makes room for that many bytes of small things, which would otherwise move as they become
    /// more.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
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

    /// Bytes that may be long, and stay where they are if they are.
    pub fn payload<F>(&mut self, _field: F, bytes: &'a [u8])
    where
        F: Field<Kind: for<'b> Put<Input<'b> = &'b [u8]>>,
    {
        self.payload_field(F::NUMBER, bytes);
    }

    /// A nested message, whose fields `body` writes.
    #[inline]
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
    pub fn encode<F: Field<Kind: MessageKind>>(&mut self, field: F, message: &'a impl Encode) {
        self.message(field, |out| message.encode(out));
    }

    /// A packed block of numbers that is ready as it is.
    pub fn packed_block<S: Scalar, F: Field<Kind = Packed<S>>>(
        &mut self,
        _field: F,
        block: &'a [u8],
    ) {
        self.payload_field(F::NUMBER, block);
    }

    /// Whole records, tags included, as they are.
    pub fn records(&mut self, records: &'a [u8]) {
        if records.len() < PAYLOAD_BYTES {
            self.bytes.extend_from_slice(records);
        } else {
            self.put_piece(self.bytes.len(), Content::Payload(records));
        }
    }

    /// The same for records that do not live long enough.
    pub fn copy_of_records(&mut self, records: &[u8]) {
        self.bytes.extend_from_slice(records);
    }

    #[inline]
    pub(crate) fn message_field<E>(
        &mut self,
        number: u32,
        body: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.head(number, WireType::Len, 0);
        let begin = self.bytes.len();
        let (first, before) = (self.pieces.len(), self.piece_bytes);
        body(self)?;
        let length = (self.bytes.len() - begin) as u64 + (self.piece_bytes - before);
        if length < 0x80 {
            self.bytes[begin - 1] = length as u8;
        } else {
            self.long_length(length, begin, first);
        }
        Ok(())
    }

    /// Puts in a length for which there is too little room, before the small things from `begin` on
    /// and the pieces from `first` on.
    fn long_length(&mut self, length: u64, begin: usize, first: usize) {
        let mut varint = [0; 10];
        let more = write_varint(&mut varint, length) - 1;
        let end = self.bytes.len();
        self.bytes[begin - 1] = varint[0];
        // Pieces move as well, and each is as much work as a few bytes.
        let moves = end - begin + size_of::<Piece<'_>>() * (self.pieces.len() - first);
        if moves >= UNMOVED_BYTES || self.moved + moves > MOST_MOVES * (end + UNMOVED_BYTES) {
            let mut rest = [0; 9];
            rest.copy_from_slice(&varint[1..]);
            return self.put_piece(begin, Content::Length(rest));
        }
        self.moved += moves;
        self.bytes.extend_from_slice(&[0; 10][..more]);
        self.bytes.copy_within(begin..end, begin + more);
        self.bytes[begin..begin + more].copy_from_slice(&varint[1..=more]);
        for piece in &mut self.pieces[first..] {
            piece.position += more;
        }
    }

    fn put_piece(&mut self, position: usize, content: Content<'a>) {
        self.piece_bytes += content.bytes().len() as u64;
        self.pieces.push(Piece { position, content });
    }

    #[inline(always)]
    pub(crate) fn word_field(&mut self, number: u32, wire_type: WireType, word: u64) {
        match wire_type {
            WireType::Fixed32 => {
                self.tag(number, wire_type);
                self.bytes.extend_from_slice(&(word as u32).to_le_bytes());
            }
            WireType::Fixed64 => {
                self.tag(number, wire_type);
                self.bytes.extend_from_slice(&word.to_le_bytes());
            }
            _ => self.head(number, wire_type, word),
        }
    }

    #[inline]
    pub(crate) fn bytes_field(&mut self, number: u32, bytes: &[u8]) {
        self.head(number, WireType::Len, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn payload_field(&mut self, number: u32, bytes: &'a [u8]) {
        self.head(number, WireType::Len, bytes.len() as u64);
        self.records(bytes);
    }

    /// A tag and, after it, a varint.
    // The number of a field is a constant where it is written, and nearly all varints take one
    // byte.
    #[inline(always)]
    fn head(&mut self, number: u32, wire_type: WireType, varint: u64) {
        let tag = number << 3 | wire_type.number();
        match (tag, varint) {
            (..0x80, ..0x80) => self.bytes.extend_from_slice(&[tag as u8, varint as u8]),
            (0x80..0x4000, ..0x80) => {
                let tag = [tag as u8 | 0x80, (tag >> 7) as u8];
                self.bytes.extend_from_slice(&[tag[0], tag[1], varint as u8]);
            }
            _ => self.long_head(tag, varint),
        }
    }

    #[inline(never)]
    fn long_head(&mut self, tag: u32, varint: u64) {
        for value in [u64::from(tag), varint] {
            self.varint(value);
        }
    }

    fn tag(&mut self, number: u32, wire_type: WireType) {
        self.varint(u64::from(number << 3 | wire_type.number()));
    }

    fn varint(&mut self, value: u64) {
        let mut bytes = [0; 10];
        let len = write_varint(&mut bytes, value);
        self.bytes.extend_from_slice(&bytes[..len]);
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
    slices!(Optional<Text>, Optional<Blob>, OneOf<Text>, Repeated<Text>, Repeated<Blob>);

    impl<M: MessageType> MessageKind for Optional<Message<M>> {}
    impl<M: MessageType> MessageKind for OneOf<Message<M>> {}
    impl<M: MessageType> MessageKind for Repeated<Message<M>> {}
}

/// Gives the bytes of what `body` writes; the fallible twin of [`encode_to_vec`].
pub(crate) fn try_encode_to_vec<'a>(
    body: impl FnOnce(&mut Encoder<'a>) -> Result<(), Error>,
) -> Result<Vec<u8>, Error> {
    let mut encoder = Encoder::default();
    body(&mut encoder)?;
    Ok(Encoded::from(encoder).into_vec())
}
