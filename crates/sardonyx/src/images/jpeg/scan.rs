//! A scan: the coefficients of some components, or a part of each coefficient (ITU-T T.81, annexes
//! F.2 and G).

use super::huffman::{Bits, Huffman};
use super::{Component, Frame, Result, Segment, Tables, ZIGZAG};

/// The coefficients of a component, as far as scans have given them.
pub(super) struct Coefficients {
    /// 64 for each block, in rows.
    pub(super) blocks: Vec<i16>,
    /// The quantization table, which is that of the first scan.
    pub(super) table: Option<[u16; 64]>,
    /// By coefficient in the order of the file: the lowest bit that is known. `None` for nothing.
    known: [Option<u32>; 64],
}

impl Coefficients {
    pub(super) fn new(component: &Component) -> Result<Coefficients> {
        let [across, down] = component.stored;
        let blocks = crate::images::zeros(across * down * 64)?;
        Ok(Coefficients { blocks, table: None, known: [None; 64] })
    }

    /// Whether a scan has given what every block has.
    pub(super) fn are_there(&self) -> bool {
        self.known[0].is_some()
    }
}

/// What a scan says of each block.
#[derive(Clone, Copy)]
enum Kind {
    /// All of it.
    Whole,
    /// The upper bits of the first coefficient, down to a bit.
    FirstDc { low: u32 },
    /// One more bit of it.
    NextDc { bit: i16 },
    /// The upper bits of some other coefficients.
    FirstAc { low: u32 },
    /// One more bit of them.
    NextAc { bit: i16 },
}

/// A component of a scan.
struct Part<'t> {
    component: usize,
    /// Blocks of a unit, along each axis.
    unit: [usize; 2],
    /// Blocks that are stored in a row.
    stride: usize,
    dc: Option<&'t Huffman>,
    ac: Option<&'t Huffman>,
    /// The first coefficient of the block before.
    before: i32,
}

pub(super) struct Scan<'t> {
    parts: Vec<Part<'t>>,
    /// Along each axis.
    units: [usize; 2],
    kind: Kind,
    /// The coefficients that it gives, in the order of the file.
    from: usize,
    to: usize,
    restart: usize,
}

impl<'t> Scan<'t> {
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
        let (from, to, kind) = if !frame.is_progressive {
            (0, 63, Kind::Whole)
        } else if from > to || to > 63 || from == 0 && to > 0 || from > 0 && count > 1 || low > 13 {
            return segment.fail(&format!("a scan cannot hold coefficients {from} to {to}"));
        } else {
            let (is_first, bit) = (high == 0, 1i16 << low);
            let kind = match (from, is_first) {
                (0, true) => Kind::FirstDc { low },
                (0, false) => Kind::NextDc { bit },
                (_, true) => Kind::FirstAc { low },
                (_, false) => Kind::NextAc { bit },
            };
            (from, to, kind)
        };
        let mut parts: Vec<Part<'_>> = Vec::new();
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
            note(segment, &mut known.known[from..=to], (high, low), kind)?;
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
                Kind::Whole => [true, true],
                Kind::FirstDc { .. } => [true, false],
                Kind::NextDc { .. } => [false, false],
                Kind::FirstAc { .. } | Kind::NextAc { .. } => [false, true],
            };
            if needs[0] && dc.is_none() || needs[1] && ac.is_none() {
                return segment.fail("a Huffman table of the scan is not defined");
            }
            let unit = if count == 1 { [1, 1] } else { [info.across, info.down] };
            parts.push(Part { component, unit, stride: info.stored[0], dc, ac, before: 0 });
        }
        // A scan of one component has its blocks in rows, without those that fill up units.
        let units = match &parts[..] {
            [part] => {
                let Component { width, height, .. } = frame.components[part.component];
                [width.div_ceil(8), height.div_ceil(8)]
            }
            _ => frame.units,
        };
        Ok(Scan { parts, units, kind, from, to, restart: tables.restart })
    }

    /// Takes in the coefficients of all blocks. Says where the bytes after them begin.
    pub(super) fn decode(
        mut self,
        bytes: &[u8],
        at: usize,
        coefficients: &mut [Coefficients],
    ) -> Result<usize> {
        let mut bits = Bits::new(bytes, at);
        // How many blocks follow in which the scan says nothing more.
        let mut empty = 0;
        let [across, down] = self.units;
        let Scan { kind, from, to, restart, .. } = self;
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
                            Kind::Whole => part.whole(&mut bits, block)?,
                            Kind::FirstDc { low } => {
                                block[0] = (part.difference(&mut bits)? << low) as i16;
                            }
                            Kind::NextDc { bit } => block[0] |= bit * bits.take(1)? as i16,
                            Kind::FirstAc { low } => {
                                part.first(&mut bits, block, (from, to, low), &mut empty)?;
                            }
                            Kind::NextAc { bit } => {
                                part.next(&mut bits, block, (from, to, bit), &mut empty)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(bits.at())
    }
}

/// Notes what a scan gives of some coefficients of a component. Each bit is given once, from the
/// top, so there is an end to scans.
fn note(
    segment: &Segment<'_>,
    known: &mut [Option<u32>],
    (high, low): (u32, u32),
    kind: Kind,
) -> Result<()> {
    let is_next = match kind {
        Kind::Whole | Kind::FirstDc { .. } | Kind::FirstAc { .. } => {
            known.iter().all(Option::is_none)
        }
        Kind::NextDc { .. } | Kind::NextAc { .. } => {
            low + 1 == high && known.iter().all(|known| *known == Some(high))
        }
    };
    if !is_next {
        return segment.fail("the scan repeats bits, or refines bits that are missing");
    }
    known.fill(Some(low));
    Ok(())
}

impl Part<'_> {
    fn symbol(table: Option<&Huffman>, bits: &mut Bits<'_>) -> Result<u8> {
        match table {
            Some(table) => table.decode(bits),
            None => bits.fail("a Huffman table is missing"),
        }
    }

    /// The first coefficient of a block, which is stored as the difference to that before.
    fn difference(&mut self, bits: &mut Bits<'_>) -> Result<i32> {
        let size = Self::symbol(self.dc, bits)?;
        self.before = self.before.wrapping_add(bits.take_signed(u32::from(size))?);
        Ok(self.before)
    }

    /// All coefficients of a block.
    fn whole(&mut self, bits: &mut Bits<'_>, block: &mut [i16]) -> Result<()> {
        block[0] = self.difference(bits)? as i16;
        let mut k = 1;
        while k <= 63 {
            let symbol = Self::symbol(self.ac, bits)?;
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            match (zeros, size) {
                (15, 0) => k += 16,
                (_, 0) => break,
                _ => {
                    let at = place(bits, k + zeros, 63)?;
                    block[at] = bits.take_signed(size)? as i16;
                    k += zeros + 1;
                }
            }
        }
        Ok(())
    }

    /// The upper bits of some coefficients.
    fn first(
        &mut self,
        bits: &mut Bits<'_>,
        block: &mut [i16],
        (from, to, low): (usize, usize, u32),
        empty: &mut u32,
    ) -> Result<()> {
        if *empty > 0 {
            *empty -= 1;
            return Ok(());
        }
        let mut k = from;
        while k <= to {
            let symbol = Self::symbol(self.ac, bits)?;
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            match (zeros, size) {
                (15, 0) => k += 16,
                (run, 0) => {
                    // This block, and as many after it.
                    *empty = blocks(bits, run)? - 1;
                    break;
                }
                _ => {
                    let at = place(bits, k + zeros, to)?;
                    block[at] = (bits.take_signed(size)? << low) as i16;
                    k += zeros + 1;
                }
            }
        }
        Ok(())
    }

    /// One more bit of some coefficients: one for each that is not zero, between the codes of those
    /// that become so.
    fn next(
        &mut self,
        bits: &mut Bits<'_>,
        block: &mut [i16],
        (from, to, bit): (usize, usize, i16),
        empty: &mut u32,
    ) -> Result<()> {
        let mut k = from;
        while *empty == 0 && k <= to {
            let symbol = Self::symbol(self.ac, bits)?;
            let (mut zeros, size) = (usize::from(symbol >> 4), symbol & 15);
            let mut new = 0;
            match (zeros, size) {
                (15, 0) => {}
                (run, 0) => {
                    *empty = blocks(bits, run)?;
                    break;
                }
                (_, 1) => new = if bits.take(1)? == 1 { bit } else { -bit },
                _ => return bits.fail("a new coefficient has more than one bit"),
            }
            // Past as many zeros as the code says, and to the place of the new one.
            loop {
                let at = place(bits, k, to)?;
                k += 1;
                if block[at] != 0 {
                    refine(bits, &mut block[at], bit)?;
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
                    refine(bits, value, bit)?;
                }
            }
            *empty -= 1;
        }
        Ok(())
    }
}

/// How many blocks end here: at least this one.
fn blocks(bits: &mut Bits<'_>, run: usize) -> Result<u32> {
    Ok((1 << run) + bits.take(run as u32)?.cast_unsigned())
}

/// The place in the block of a coefficient of the file.
fn place(bits: &Bits<'_>, k: usize, to: usize) -> Result<usize> {
    match ZIGZAG.get(k) {
        Some(at) if k <= to => Ok(usize::from(*at)),
        _ => bits.fail(&format!("a run of zeros goes beyond coefficient {to}")),
    }
}

/// Adds the next bit to a coefficient, away from zero.
fn refine(bits: &mut Bits<'_>, value: &mut i16, bit: i16) -> Result<()> {
    if bits.take(1)? == 1 && *value & bit == 0 {
        *value = if *value > 0 { value.wrapping_add(bit) } else { value.wrapping_sub(bit) };
    }
    Ok(())
}
