/// Chooses one of four values by instruction set: for AVX-512, AVX2, NEON, and the instructions
/// that the target guarantees. Every choice by instruction set is made with this macro.
#[macro_export]
macro_rules! by_isa {
    ($isa:expr, $avx512:expr, $avx2:expr, $neon:expr, $portable:expr $(,)?) => {
        match $isa {
            #[cfg(target_arch = "x86_64")]
            $crate::Isa::Avx512 => $avx512,
            #[cfg(target_arch = "x86_64")]
            $crate::Isa::Avx2 => $avx2,
            #[cfg(target_arch = "aarch64")]
            $crate::Isa::Neon => $neon,
            _ => $portable,
        }
    };
}

/// Enables the instructions of a set in a function.
///
/// `enable!(avx2, fn f() {})` is `f` compiled for AVX2. The attribute takes a literal, so the lists
/// of features are here. `isa.rs`, and `is_available` for extensions beyond an instruction set
/// (`avx512_bf16`, `avx512_vnni`, `neon_dotprod`), test for each instruction before such a function
/// is called.
#[macro_export]
macro_rules! enable {
    (portable, $function:item) => {
        $function
    };
    // All processors of the target have it.
    (neon, $function:item) => {
        $function
    };
    (neon_dotprod, $function:item) => {
        #[target_feature(enable = "neon,dotprod")]
        $function
    };
    (avx2, $function:item) => {
        #[target_feature(enable = "avx2,fma,f16c")]
        $function
    };
    (avx512, $function:item) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
        $function
    };
    (avx512_vnni, $function:item) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,bmi2")]
        $function
    };
    (avx512_bf16, $function:item) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi2")]
        $function
    };
}
