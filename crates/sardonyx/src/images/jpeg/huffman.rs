//! Bit reader and Huffman decoder of scans (ITU-T T.81, annexes C and F.2.2).

use super::Result;

/// Maximum length of Huffman codes that one table lookup decodes, in bits.
const LOOK: u32 = 9;

/// Reader of the entropy-coded bits from one marker to the next.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Byte offset in the file of the next byte that is not in the bit buffer.
    at: usize,
    /// Bit buffer: the next bits, of which the highest is the first.
    held: u64,
    /// Number of bits in the bit buffer.
    count: u32,
}

impl<'a> Bits<'a> {
    /// Starts reading at byte offset `at` of a file.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Bits<'a> {
        Bits { bytes, at, held: 0, count: 0 }
    }

    /// Fills the bit buffer, up to a marker or the end of the file.
    fn fill(&mut self) {
        while self.count <= 56 {
            let Some(byte) = self.bytes.get(self.at).copied() else { return };
            let mut next = self.at + 1;
            if byte == 0xff {
                // A data byte FF is escaped by a 00; fill bytes FF may precede it.
                while self.bytes.get(next) == Some(&0xff) {
                    next += 1;
                }
                if self.bytes.get(next) != Some(&0) {
                    return;
                }
                next += 1;
            }
            self.held |= u64::from(byte) << (56 - self.count);
            self.count += 8;
            self.at = next;
        }
    }

    /// Returns the next `count` bits, at most 16, without consuming them. Bits that are missing at
    /// the end are zero.
    fn peek(&mut self, count: u32) -> u32 {
        if self.count < count {
            self.fill();
        }
        (self.held >> 48) as u32 >> (16 - count)
    }

    /// Consumes the next `count` bits; fails if fewer are left.
    fn skip(&mut self, count: u32) -> Result<()> {
        if self.count < count {
            return self.fail("the data of the scan end early");
        }
        self.held <<= count;
        self.count -= count;
        Ok(())
    }

    /// Reads the next `count` bits, at most 16, as an unsigned number.
    pub(super) fn read_bits(&mut self, count: u32) -> Result<i32> {
        if count == 0 {
            return Ok(0);
        }
        let bits = self.peek(count);
        self.skip(count)?;
        Ok(bits.cast_signed())
    }

    /// Reads the next `count` bits as a signed number: the lower half of the range is negative.
    pub(super) fn read_signed(&mut self, count: u32) -> Result<i32> {
        let bits = self.read_bits(count)?;
        let is_negative = count > 0 && bits >> (count - 1) == 0;
        Ok(if is_negative { bits - (1 << count) + 1 } else { bits })
    }

    /// Drops the buffered bits and continues after the next marker, which must be the restart
    /// marker `number`.
    pub(super) fn restart(&mut self, number: u8) -> Result<()> {
        (self.held, self.count) = (0, 0);
        self.at = super::next_marker(self.bytes, self.at)?;
        let marker = self.bytes[self.at + 1];
        if marker != 0xd0 + number {
            return self
                .fail(&format!("the marker FF{marker:02X} is not the restart marker {number}"));
        }
        self.at += 2;
        Ok(())
    }

    /// Returns the byte offset in the file of the next byte that is not in the bit buffer.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns an error: the byte offset in the file, and the problem `what`.
    pub(super) fn fail<T>(&self, what: &str) -> Result<T> {
        Err(format!("at byte {}: {what}", self.at))
    }
}

/// Huffman table: decodes codes into symbols.
#[derive(Clone)]
pub(super) struct Huffman {
    /// Lookup table indexed by the next [`LOOK`] bits: length of the code in the upper byte, symbol
    /// in the lower one; 0 if the code is longer or invalid.
    short: Vec<u16>,
    /// Ranges of the codes, indexed by their length in bits.
    lengths: [CodeRange; 17],
    symbols: Vec<u8>,
}

/// Huffman codes of one length, which are consecutive numbers.
#[derive(Clone, Copy, Default)]
struct CodeRange {
    /// End of the range of codes, exclusive.
    end: i32,
    /// Difference between the index of a code's symbol and the code.
    to_symbol: i32,
}

impl Huffman {
    /// Makes a Huffman table from the number of codes of each length, from 1 bit up, and the
    /// symbols in the order of the codes. `None` if there are more codes than bits can distinguish,
    /// or fewer symbols than codes.
    pub(super) fn new(counts: &[u8], symbols: &[u8]) -> Option<Huffman> {
        let mut table = Huffman {
            short: vec![0; 1 << LOOK],
            lengths: [CodeRange::default(); 17],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut place) = (0usize, 0usize);
        for (length, count) in (1u32..).zip(counts) {
            let (first, count) = (code, usize::from(*count));
            code += count;
            if code > 1 << length {
                return None;
            }
            table.lengths[length as usize] =
                CodeRange { end: code as i32, to_symbol: place as i32 - first as i32 };
            if length <= LOOK {
                let wide = 1 << (LOOK - length);
                for (offset, symbol) in symbols.get(place..place + count)?.iter().enumerate() {
                    let from = (first + offset) * wide;
                    table.short[from..from + wide].fill((length as u16) << 8 | u16::from(*symbol));
                }
            }
            place += count;
            code <<= 1;
        }
        Some(table)
    }

    /// Whether all symbols of the table are at most `bound`.
    pub(super) fn is_bounded_by(&self, bound: u8) -> bool {
        self.symbols.iter().all(|symbol| *symbol <= bound)
    }

    /// Reads the next Huffman code and returns its symbol.
    pub(super) fn decode(&self, bits: &mut Bits<'_>) -> Result<u8> {
        let next = bits.peek(16);
        let short = self.short[(next >> (16 - LOOK)) as usize];
        if short != 0 {
            bits.skip(u32::from(short >> 8))?;
            return Ok(short as u8);
        }
        for length in LOOK + 1..=16 {
            let code = (next >> (16 - length)).cast_signed();
            let CodeRange { end, to_symbol } = self.lengths[length as usize];
            if code < end {
                bits.skip(length)?;
                let symbol = self.symbols.get((code + to_symbol) as usize);
                return symbol
                    .copied()
                    .ok_or_else(|| format!("at byte {}: a Huffman code has no symbol", bits.at()));
            }
        }
        // `peek` fills missing bits with zeros: `skip` fails if bits are missing.
        bits.skip(16)?;
        bits.fail("the bits are not a code of the Huffman table")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_from_their_lengths() {
        // Codes 0, 10, 110 and one of 11 bits: 11100000000.
        let mut counts = [0; 16];
        (counts[0], counts[1], counts[2], counts[10]) = (1, 1, 1, 1);
        let table = Huffman::new(&counts, &[7, 8, 9, 10]).unwrap();
        // 110 0 10 11100000000 and padding of ones.
        let bytes = [0b1100_1011, 0b1000_0000, 0b0111_1111];
        let mut bits = Bits::new(&bytes, 0);
        let symbols: Vec<u8> = (0..4).map(|_| table.decode(&mut bits).unwrap()).collect();
        assert_eq!(symbols, [9, 7, 8, 10]);
        assert_eq!(
            table.decode(&mut bits).unwrap_err(),
            "at byte 3: the data of the scan end early"
        );
        let mut bits = Bits::new(&[0xfe; 4], 0);
        assert_eq!(
            table.decode(&mut bits).unwrap_err(),
            "at byte 4: the bits are not a code of the Huffman table"
        );
        counts[0] = 3;
        assert!(Huffman::new(&counts, &[0; 6]).is_none());
    }

    #[test]
    fn bits_end_at_a_marker() {
        let bytes = [0xff, 0x00, 0x5a, 0xff, 0xff, 0x00, 0xff, 0xd0, 0x80, 0xff, 0xd9];
        let mut bits = Bits::new(&bytes, 0);
        assert_eq!(bits.read_bits(16), Ok(0xff5a));
        assert_eq!(bits.read_signed(4), Ok(15));
        assert_eq!(bits.read_bits(5).unwrap_err(), "at byte 6: the data of the scan end early");
        assert_eq!(
            bits.restart(1).unwrap_err(),
            "at byte 6: the marker FFD0 is not the restart marker 1"
        );
        bits.restart(0).unwrap();
        assert_eq!(bits.read_bits(1), Ok(1));
        // The lower half is negative: 0000000 is -127.
        assert_eq!(bits.read_signed(7), Ok(-127));
    }
}
