//! Scans of JPEG images: sequential scans with whole coefficients, and progressive scans with a
//! band or some bits of the coefficients (ITU-T T.81, annexes F.2 and G).

use super::huffman::{Bits, Huffman};
use super::{Component, Frame, QuantizationTable, Result, Segment, Tables, ZIGZAG};

/// DCT coefficients of a JPEG component, accumulated over the scans.
pub(super) struct Coefficients {
    /// Coefficients of all blocks, 64 for each, row by row.
    pub(super) blocks: Vec<i16>,
    /// Quantization table that applied at the component's first scan; `None` before this scan.
    pub(super) table: Option<QuantizationTable>,
    /// Number of the lowest bit of each coefficient that a scan has set, in zigzag order; `None` if
    /// no scan has set a bit.
    known: [Option<u32>; 64],
}

impl Coefficients {
    /// Allocates the coefficients of a component, all zero.
    pub(super) fn new(component: &Component) -> Result<Coefficients> {
        let [across, down] = component.stored;
        let blocks = crate::images::allocate_zeros(across * down * 64)?;
        Ok(Coefficients { blocks, table: None, known: [None; 64] })
    }

    /// Whether a scan has set the DC coefficients, without which no block can be decoded.
    pub(super) fn is_present(&self) -> bool {
        self.known[0].is_some()
    }
}

/// Kind of a JPEG scan: the bits of each block that the scan stores. Progressive scans approximate
/// coefficients successively, from the upper bits to the lower bits.
#[derive(Clone, Copy)]
enum ScanKind {
    /// All coefficients with all their bits: a sequential scan.
    Whole,
    /// Upper bits of the DC coefficient, down to bit `low`.
    FirstDc { low: u32 },
    /// One more bit of the DC coefficient.
    NextDc { bit: i16 },
    /// Upper bits of a band of AC coefficients, down to bit `low`.
    FirstAc { low: u32 },
    /// One more bit of a band of AC coefficients.
    NextAc { bit: i16 },
}

/// Band of coefficients of a block (spectral selection): numbers of the first and the last
/// coefficient, in zigzag order.
#[derive(Clone, Copy)]
struct Band {
    from: usize,
    to: usize,
}

/// A component in a JPEG scan, with its tables.
struct ScanComponent<'t> {
    component: usize,
    /// Number of blocks of the component in a unit (MCU), across and down.
    unit: [usize; 2],
    /// Number of stored blocks in a row of the component.
    stride: usize,
    dc: Option<&'t Huffman>,
    ac: Option<&'t Huffman>,
    /// DC coefficient of the previous block, the prediction for the next block.
    before: i32,
}

/// A JPEG scan whose header has been read.
pub(super) struct Scan<'t> {
    parts: Vec<ScanComponent<'t>>,
    /// Number of units (MCUs) in the scan, across and down.
    units: [usize; 2],
    kind: ScanKind,
    band: Band,
    /// Number of units between restart markers; 0 without markers.
    restart: usize,
}

impl<'t> Scan<'t> {
    /// Reads the header of a scan, and checks it against the frame header and the earlier scans,
    /// which `coefficients` records.
    pub(super) fn read(
        segment: &Segment<'_>,
        frame: &Frame,
        tables: &'t Tables,
        coefficients: &mut [Coefficients],
    ) -> Result<Scan<'t>> {
        let (count, [names @ .., from, to, bits]) = (segment.body.first(), segment.body) else {
            return segment.fail("the scan header is truncated");
        };
        let names = names.get(1..).unwrap_or_default();
        let count = usize::from(count.copied().unwrap_or(0));
        if !(1..=4).contains(&count) || names.len() != count * 2 {
            return segment.fail("the length of the scan header does not match its components");
        }
        let (from, to) = (usize::from(*from), usize::from(*to));
        let (high, low) = (u32::from(bits >> 4), u32::from(bits & 15));
        let (band, kind) = if !frame.is_progressive {
            (Band { from: 0, to: 63 }, ScanKind::Whole)
        } else if from > to || to > 63 || from == 0 && to > 0 || from > 0 && count > 1 || low > 13 {
            return segment.fail(&format!("a scan cannot hold coefficients {from} to {to}"));
        } else {
            let (is_first, bit) = (high == 0, 1i16 << low);
            let kind = match (from, is_first) {
                (0, true) => ScanKind::FirstDc { low },
                (0, false) => ScanKind::NextDc { bit },
                (_, true) => ScanKind::FirstAc { low },
                (_, false) => ScanKind::NextAc { bit },
            };
            (Band { from, to }, kind)
        };
        let mut parts: Vec<ScanComponent<'_>> = Vec::new();
        for name in names.chunks_exact(2) {
            let component = frame.components.iter().position(|component| component.id == name[0]);
            let component = component.filter(|c| parts.iter().all(|part| part.component != *c));
            let Some(component) = component else {
                return segment.fail(&format!(
                    "the scan has component {}, which is not in the frame or occurs twice",
                    name[0]
                ));
            };
            let known = &mut coefficients[component];
            record_bits(segment, &mut known.known[band.from..=band.to], high, low, kind)?;
            let info = &frame.components[component];
            known.table = known.table.or(tables.quantization[info.table]);
            if known.table.is_none() {
                let table = info.table;
                return segment.fail(&format!("the quantization table {table} is not defined"));
            }
            let [dc, ac] = [(0, name[1] >> 4), (1, name[1] & 15)].map(|(class, number)| {
                tables.huffman[class].get(usize::from(number)).and_then(Option::as_ref)
            });
            let needs = match kind {
                ScanKind::Whole => [true, true],
                ScanKind::FirstDc { .. } => [true, false],
                ScanKind::NextDc { .. } => [false, false],
                ScanKind::FirstAc { .. } | ScanKind::NextAc { .. } => [false, true],
            };
            if needs[0] && dc.is_none() || needs[1] && ac.is_none() {
                return segment.fail("a Huffman table of the scan is not defined");
            }
            let unit = if count == 1 { [1, 1] } else { [info.across, info.down] };
            let stride = info.stored[0];
            parts.push(ScanComponent { component, unit, stride, dc, ac, before: 0 });
        }
        // A scan of one component is not interleaved: it lacks the blocks that only pad units.
        let units = match &parts[..] {
            [part] => {
                let Component { width, height, .. } = frame.components[part.component];
                [width.div_ceil(8), height.div_ceil(8)]
            }
            _ => frame.units,
        };
        Ok(Scan { parts, units, kind, band, restart: tables.restart })
    }

    /// Decodes the coefficients of all blocks of the scan, from byte offset `at`. Returns the byte
    /// offset after the scan.
    pub(super) fn decode(
        mut self,
        bytes: &[u8],
        at: usize,
        coefficients: &mut [Coefficients],
    ) -> Result<usize> {
        let mut bits = Bits::new(bytes, at);
        // Number of blocks left in an end-of-band run, in which no new coefficients follow.
        let mut empty = 0;
        let [across, down] = self.units;
        let Scan { kind, band, restart, .. } = self;
        for unit in 0..across * down {
            if restart > 0 && unit > 0 && unit % restart == 0 {
                bits.restart(((unit / restart - 1) % 8) as u8)?;
                empty = 0;
                self.parts.iter_mut().for_each(|part| part.before = 0);
            }
            let (column, row) = (unit % across, unit / across);
            for part in &mut self.parts {
                let blocks = &mut coefficients[part.component].blocks;
                for y in 0..part.unit[1] {
                    for x in 0..part.unit[0] {
                        let (x, y) = (column * part.unit[0] + x, row * part.unit[1] + y);
                        let block = &mut blocks[(y * part.stride + x) * 64..][..64];
                        match kind {
                            ScanKind::Whole => part.decode_block(&mut bits, block)?,
                            ScanKind::FirstDc { low } => {
                                block[0] = (part.decode_dc(&mut bits)? << low) as i16;
                            }
                            ScanKind::NextDc { bit } => block[0] |= bit * bits.read_bits(1)? as i16,
                            ScanKind::FirstAc { low } => {
                                part.decode_first_ac(&mut bits, block, band, low, &mut empty)?;
                            }
                            ScanKind::NextAc { bit } => {
                                part.decode_next_ac(&mut bits, block, band, bit, &mut empty)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(bits.at())
    }
}

/// Records in `known` the coefficient bits that a scan sets, from above bit `high` (0 for the first
/// scan) down to bit `low`. Fails unless each bit is set once, from the top, which bounds the
/// number of useful scans.
fn record_bits(
    segment: &Segment<'_>,
    known: &mut [Option<u32>],
    high: u32,
    low: u32,
    kind: ScanKind,
) -> Result<()> {
    let is_next = match kind {
        ScanKind::Whole | ScanKind::FirstDc { .. } | ScanKind::FirstAc { .. } => {
            known.iter().all(Option::is_none)
        }
        ScanKind::NextDc { .. } | ScanKind::NextAc { .. } => {
            low + 1 == high && known.iter().all(|known| *known == Some(high))
        }
    };
    if !is_next {
        return segment
            .fail("the scan repeats bits of coefficients, or refines bits that are missing");
    }
    known.fill(Some(low));
    Ok(())
}

impl ScanComponent<'_> {
    /// Reads the next symbol of a Huffman table; fails without a table.
    fn read_symbol(table: Option<&Huffman>, bits: &mut Bits<'_>) -> Result<u8> {
        match table {
            Some(table) => table.decode(bits),
            None => bits.fail("a Huffman table is missing"),
        }
    }

    /// Decodes the DC coefficient of a block, which is stored as the difference from the DC
    /// coefficient of the previous block.
    fn decode_dc(&mut self, bits: &mut Bits<'_>) -> Result<i32> {
        let size = Self::read_symbol(self.dc, bits)?;
        self.before = self.before.wrapping_add(bits.read_signed(u32::from(size))?);
        Ok(self.before)
    }

    /// Decodes all coefficients of a block of a sequential scan.
    fn decode_block(&mut self, bits: &mut Bits<'_>, block: &mut [i16]) -> Result<()> {
        block[0] = self.decode_dc(bits)? as i16;
        let mut k = 1;
        while k <= 63 {
            let symbol = Self::read_symbol(self.ac, bits)?;
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            match (zeros, size) {
                (15, 0) => k += 16,
                (_, 0) => break,
                _ => {
                    let at = find_block_index(bits, k + zeros, 63)?;
                    block[at] = bits.read_signed(size)? as i16;
                    k += zeros + 1;
                }
            }
        }
        Ok(())
    }

    /// Decodes the upper bits of a band of AC coefficients of a block, down to bit `low`. `empty`
    /// is the number of blocks left in an end-of-band run.
    fn decode_first_ac(
        &mut self,
        bits: &mut Bits<'_>,
        block: &mut [i16],
        band: Band,
        low: u32,
        empty: &mut u32,
    ) -> Result<()> {
        if *empty > 0 {
            *empty -= 1;
            return Ok(());
        }
        let Band { from, to } = band;
        let mut k = from;
        while k <= to {
            let symbol = Self::read_symbol(self.ac, bits)?;
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            match (zeros, size) {
                (15, 0) => k += 16,
                (run, 0) => {
                    // The run includes this block.
                    *empty = read_run_length(bits, run)? - 1;
                    break;
                }
                _ => {
                    let at = find_block_index(bits, k + zeros, to)?;
                    block[at] = (bits.read_signed(size)? << low) as i16;
                    k += zeros + 1;
                }
            }
        }
        Ok(())
    }

    /// Decodes one more bit of a band of AC coefficients of a block. The file has a refinement bit
    /// for each nonzero coefficient, between the codes of coefficients that become nonzero. `empty`
    /// is the number of blocks left in an end-of-band run.
    fn decode_next_ac(
        &mut self,
        bits: &mut Bits<'_>,
        block: &mut [i16],
        band: Band,
        bit: i16,
        empty: &mut u32,
    ) -> Result<()> {
        let Band { from, to } = band;
        let mut k = from;
        while *empty == 0 && k <= to {
            let symbol = Self::read_symbol(self.ac, bits)?;
            let (mut zeros, size) = (usize::from(symbol >> 4), symbol & 15);
            let mut new = 0;
            match (zeros, size) {
                (15, 0) => {}
                (run, 0) => {
                    *empty = read_run_length(bits, run)?;
                    break;
                }
                (_, 1) => new = if bits.read_bits(1)? == 1 { bit } else { -bit },
                _ => return bits.fail("a new coefficient has more than one bit"),
            }
            // Skip the code's number of zeros, refining the others, to the position of the new one.
            loop {
                let at = find_block_index(bits, k, to)?;
                k += 1;
                if block[at] != 0 {
                    refine_coefficient(bits, &mut block[at], bit)?;
                } else if zeros == 0 {
                    block[at] = new;
                    break;
                } else {
                    zeros -= 1;
                }
                if k > to && new == 0 {
                    break;
                }
            }
        }
        if *empty > 0 {
            for at in &ZIGZAG[k..=to] {
                let value = &mut block[usize::from(*at)];
                if *value != 0 {
                    refine_coefficient(bits, value, bit)?;
                }
            }
            *empty -= 1;
        }
        Ok(())
    }
}

/// Reads the length of an end-of-band run: the number of blocks whose band ends here, including the
/// current block.
fn read_run_length(bits: &mut Bits<'_>, run: usize) -> Result<u32> {
    Ok((1 << run) + bits.read_bits(run as u32)?.cast_unsigned())
}

/// Returns the index in a block of the coefficient with number `k` in zigzag order; fails if `k` is
/// above `to`, the end of the band.
fn find_block_index(bits: &Bits<'_>, k: usize, to: usize) -> Result<usize> {
    match ZIGZAG.get(k) {
        Some(at) if k <= to => Ok(usize::from(*at)),
        _ => bits.fail(&format!("a run of zero coefficients goes beyond coefficient {to}")),
    }
}

/// Reads the refinement bit of the coefficient `value`, and adds it to the absolute value at `bit`.
fn refine_coefficient(bits: &mut Bits<'_>, value: &mut i16, bit: i16) -> Result<()> {
    if bits.read_bits(1)? == 1 && *value & bit == 0 {
        *value = if *value > 0 { value.wrapping_add(bit) } else { value.wrapping_sub(bit) };
    }
    Ok(())
}
