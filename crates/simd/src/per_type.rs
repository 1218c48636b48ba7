//! Kernels as methods of element types, so that their loops are compiled only in the crate of the
//! kernel.
//!
//! A generic function is compiled where it is used. Kernels are many loops for many types and
//! instruction sets. Compiled in the crates that call them, they would be built again with every
//! change there, at those crates' optimization level. A method of a concrete type has its code in
//! the crate that implements it. The documentation is at the function that the method calls.

/// Declares a trait and implements it for each listed type. A method
///
/// ```text
/// reduce::reduce = fn reduce(exec: &Exec<'_>, .., out: &mut [Self]);
/// ```
///
/// becomes `fn reduce(..);` in the trait and `fn reduce(..) { crate::reduce::reduce(..) }` for each
/// type. A blanket implementation would be generic again. A `#[cfg]` before a method applies to the
/// method.
// The paths are those of the crate that declares the trait.
#[allow(clippy::crate_in_macro_def)]
#[macro_export]
macro_rules! per_type {
    ($(
        $(#[$doc:meta])*
        trait $name:ident: $super:ident for [$($t:ty),*] {
            $( $(#[$when:meta])* $($path:ident)::+ = fn $method:ident($($arg:ident: $arg_ty:ty),* $(,)?) $(-> $ret:ty)?; )*
        }
    )*) => { $(
        $(#[$doc])*
        pub trait $name: $super {
            $(
                #[doc = concat!("See `", stringify!($($path)::+), "`.")]
                $(#[$when])*
                fn $method($($arg: $arg_ty),*) $(-> $ret)?;
            )*
        }
        $crate::per_type!(@types $name [$($t),*] { $( $(#[$when])* $($path)::+ = fn $method($($arg: $arg_ty),*) $(-> $ret)?; )* });
    )* };
    (@types $name:ident [$first:ty $(, $rest:ty)*] $methods:tt) => {
        $crate::per_type!(@one $name $first, $methods);
        $crate::per_type!(@types $name [$($rest),*] $methods);
    };
    (@types $name:ident [] $methods:tt) => {};
    (@one $name:ident $t:ty, { $( $(#[$when:meta])* $($path:ident)::+ = fn $method:ident($($arg:ident: $arg_ty:ty),*) $(-> $ret:ty)?; )* }) => {
        impl $name for $t {
            $( $(#[$when])* fn $method($($arg: $arg_ty),*) $(-> $ret)? { crate::$($path)::+($($arg),*) } )*
        }
    };
}
