//! Complex numbers of the crate `num-complex` as elements. They have the layout of ours, so slices
//! of either type borrow the same bytes.

use num_complex::{Complex32, Complex64 as NumComplex64};

use crate::element::{Complex64, Complex128, DataType, Element, sealed::Sealed};

/// Implements `Element` for a complex number of `num-complex`, and conversions from and to ours.
macro_rules! complex_elements {
    ($($theirs:ty => $ours:ident)*) => {$(
        impl Sealed for $theirs {}
        impl Element for $theirs {
            const DATA_TYPE: DataType = DataType::$ours;
        }

        impl From<$theirs> for $ours {
            fn from(number: $theirs) -> $ours {
                $ours { re: number.re, im: number.im }
            }
        }

        impl From<$ours> for $theirs {
            fn from(number: $ours) -> $theirs {
                <$theirs>::new(number.re, number.im)
            }
        }
    )*};
}

complex_elements! {
    Complex32 => Complex64
    NumComplex64 => Complex128
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;

    #[test]
    fn both_types_borrow_the_same_elements() {
        let numbers = vec![Complex32::new(1.0, -2.0), Complex32::new(0.5, 4.0)];
        let place = numbers.as_ptr();
        let tensor = Tensor::from_vec([2], numbers).unwrap();
        assert_eq!(tensor.data_type(), DataType::Complex64);
        assert_eq!(tensor.as_slice::<Complex32>().unwrap().as_ptr(), place);
        let ours = tensor.as_slice::<Complex64>().unwrap();
        assert_eq!(ours.as_ptr().cast(), place);
        assert_eq!(ours[1], Complex64 { re: 0.5, im: 4.0 });
        assert!(tensor.as_slice::<NumComplex64>().is_err());

        let tensor = Tensor::scalar(Complex128 { re: 3.0, im: -1.0 });
        let theirs: NumComplex64 = tensor.item().unwrap();
        assert_eq!(theirs, NumComplex64::new(3.0, -1.0));
        assert_eq!(NumComplex64::from(Complex128::from(theirs)), theirs);
    }
}
