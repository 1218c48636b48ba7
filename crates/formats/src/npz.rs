//! `.npz`: a zip archive of `.npy` files, one per array.
