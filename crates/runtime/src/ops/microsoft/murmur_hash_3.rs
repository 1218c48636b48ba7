//! MurmurHash3: a hash of the bytes of each element.

use sardonyx_tensor::{DataType, Dims};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::text::texts;

/// Binds `MurmurHash3`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let elem = site.elem(0)?;
    let bytes = match elem {
        DataType::Uint32 | DataType::Int32 | DataType::Float => Some(4),
        DataType::Uint64 | DataType::Int64 | DataType::Double => Some(8),
        DataType::String => None,
        _ => return site.unsupported_type(elem),
    };
    let seed = site.need_int("seed")?;
    let is_positive = site.need_int("positive")? != 0;
    // The seed is the low 32 bits of the attribute, of any sign.
    Ok(Box::new(MurmurHash3 { bytes, seed: seed as u32, is_positive }))
}

struct MurmurHash3 {
    /// Size of an element in bytes; `None` for strings.
    bytes: Option<usize>,
    seed: u32,
    /// Whether hashes are unsigned.
    is_positive: bool,
}

impl Kernel for MurmurHash3 {
    fn describe(&self) -> String {
        format!("from {}", self.seed)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let x = call.tensor(0)?;
        let dims: Dims = x.dims().into();
        let mut hashes = call.scratch::<u32>(x.len())?;
        match self.bytes {
            Some(count) => {
                let Some(bytes) = x.contiguous_bytes() else {
                    fail!("the elements are not dense");
                };
                let elements = bytes.chunks_exact(count);
                hashes.iter_mut().zip(elements).for_each(|(y, x)| *y = hash(x, self.seed));
            }
            None => {
                for (y, x) in hashes.iter_mut().zip(texts(x)?) {
                    *y = hash(x?, self.seed);
                }
            }
        }
        if self.is_positive {
            call.output_slice::<u32>(0, &dims)?.copy_from_slice(&hashes);
        } else {
            let signed = call.output_slice::<i32>(0, &dims)?;
            signed.iter_mut().zip(&hashes[..]).for_each(|(y, hash)| *y = *hash as i32);
        }
        Ok(())
    }
}

/// Computes the 32-bit MurmurHash3.
fn hash(bytes: &[u8], seed: u32) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<4>();
    let mut state = seed;
    for block in blocks {
        state ^= mix(u32::from_le_bytes(*block));
        state = state.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    state ^= mix(u32::from_le_bytes(last));
    // The hash takes the low 32 bits of a length.
    state ^= bytes.len() as u32;
    state ^= state >> 16;
    state = state.wrapping_mul(0x85eb_ca6b);
    state ^= state >> 13;
    state = state.wrapping_mul(0xc2b2_ae35);
    state ^ state >> 16
}

/// Mixes a block of four bytes before it is added to the state; zero stays zero.
fn mix(block: u32) -> u32 {
    block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run_of, strings, tensor};

    fn hash(x: &Tensor, attributes: &[(&'static str, i64)]) -> Tensor {
        let defaults = [("seed", 0), ("positive", 1)];
        let all = defaults.map(|(name, value)| {
            let given = attributes.iter().find(|(other, _)| *other == name);
            (name, Int(given.map_or(value, |(_, value)| *value)))
        });
        let form = ("com.microsoft", "MurmurHash3", 1);
        run_of(form, &all, &[Some(x)], &[], 1).unwrap().remove(0)
    }

    #[test]
    fn hashes_are_those_of_the_published_algorithm() {
        let texts = strings(&[5], &["", "a", "abc", "abcd", "hello, world"]);
        let expected: [u32; 5] = [0, 0x3c25_69b2, 0xb3dd_93fa, 0x43ed_676a, 0x149b_bb7f];
        assert_eq!(hash(&texts, &[]), tensor(&[5], &expected));
        let signed = expected.map(|hash| hash as i32);
        assert_eq!(hash(&texts, &[("positive", 0)]), tensor(&[5], &signed));
        assert_eq!(hash(&strings(&[1], &[""]), &[("seed", 1)]), tensor(&[1], &[0x514e_28b7_u32]));
        // Numbers are their bytes.
        let number = u32::from_le_bytes(*b"abcd");
        assert_eq!(hash(&tensor(&[1], &[number]), &[]), tensor(&[1], &[0x43ed_676a_u32]));
    }
}
