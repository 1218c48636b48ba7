//! Objects behind the pointers that C code holds: making, finding and releasing them.
//!
//! Debug builds keep a list of all live objects, so that a null pointer, a pointer to an object of
//! another kind and a released object are errors. A released object is not found once a new object
//! of its kind has its address. Release builds check for null only.

#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::failure::{Error, demand};

/// An object that C code holds by pointer.
pub(crate) trait Object: Sized {
    /// Name of the type in the C header.
    const NAME: &'static str;
}

/// Pointer to an object, as C code passes it: null or made by [`give`], [`Kept::pointer`] or
/// another function of this module.
///
/// The methods dereference it. Their promise is that of the C interface: a caller passes only
/// pointers that this library has returned and that were not released, and does not change an
/// object while another thread uses it.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Handle<T>(*mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T: Object> Handle<T> {
    /// Returns the object.
    ///
    /// # Errors
    ///
    /// A null pointer; in debug builds also a pointer to anything but a live object of the type.
    #[inline]
    pub(crate) fn get(&self) -> Result<&T, Error> {
        self.check()?;
        // SAFETY: the pointer is not null, and the caller promises that it is a live object.
        Ok(unsafe { &*self.0 })
    }

    /// Returns the object for a change.
    ///
    /// # Errors
    ///
    /// The errors of [`Handle::get`].
    pub(crate) fn change(&mut self) -> Result<&mut T, Error> {
        self.check()?;
        // SAFETY: the pointer is not null, and the caller promises that it is a live object that no
        // other thread uses meanwhile.
        Ok(unsafe { &mut *self.0 })
    }

    /// Returns the object; `None` for a null pointer.
    ///
    /// # Errors
    ///
    /// The errors of [`Handle::get`], but for a null pointer.
    #[inline]
    pub(crate) fn optional(&self) -> Result<Option<&T>, Error> {
        if self.0.is_null() { Ok(None) } else { self.get().map(Some) }
    }

    /// Frees the object. A null pointer is ignored. In debug builds so is a pointer to anything but
    /// a live object that the caller owns.
    pub(crate) fn release(self) {
        if self.0.is_null() || !live::remove(self.0.addr(), T::NAME) {
            return;
        }
        // SAFETY: the pointer comes from `give`, and the caller promises to release it once.
        drop(unsafe { Box::from_raw(self.0) });
    }

    /// Wraps a pointer that the caller has in an array.
    pub(crate) fn new(pointer: *mut T) -> Handle<T> {
        Handle(pointer)
    }

    /// Returns the object of a pointer that the caller has in an array; `None` for a null pointer.
    ///
    /// # Errors
    ///
    /// The errors of [`Handle::get`], but for a null pointer.
    #[inline]
    pub(crate) fn borrow(pointer: &*mut T) -> Result<Option<&T>, Error> {
        let handle = Handle(*pointer);
        if handle.0.is_null() {
            return Ok(None);
        }
        handle.check()?;
        // SAFETY: as in `get`; the caller keeps the object for as long as its array.
        Ok(Some(unsafe { &*handle.0 }))
    }

    /// Takes the object from the caller, which no longer owns it.
    ///
    /// # Errors
    ///
    /// The errors of [`Handle::get`], and in debug builds an object that the caller does not own.
    pub(crate) fn take(self) -> Result<T, Error> {
        self.check()?;
        let is_owned = live::remove(self.0.addr(), T::NAME);
        demand(is_owned, || format!("the {} does not belong to the caller", T::NAME))?;
        // SAFETY: the pointer comes from `give`, and the caller promises not to use it again.
        Ok(*unsafe { Box::from_raw(self.0) })
    }

    #[inline]
    fn check(&self) -> Result<(), Error> {
        demand(!self.0.is_null(), || format!("the {} is a null pointer", T::NAME))?;
        live::check(self.0.addr(), T::NAME)
    }
}

/// Hands an object to the caller, who releases it.
pub(crate) fn give<T: Object>(object: T) -> *mut T {
    give_boxed(Box::new(object))
}

/// Hands an object in memory of its own to the caller, who releases it.
pub(crate) fn give_boxed<T: Object>(object: Box<T>) -> *mut T {
    const { assert!(size_of::<T>() > 0, "all objects without bytes have one address") };
    let pointer = Box::into_raw(object);
    live::add(pointer.addr(), T::NAME, true);
    pointer
}

/// Object that callers may read by pointer while its owner lives, and do not release.
#[derive(Debug)]
pub(crate) struct Kept<T: Object> {
    pointer: *mut T,
    owned: PhantomData<T>,
}

// SAFETY: the object is owned like by a `Box`.
unsafe impl<T: Object + Send> Send for Kept<T> {}
// SAFETY: as above; the object is only read.
unsafe impl<T: Object + Sync> Sync for Kept<T> {}

impl<T: Object> Kept<T> {
    /// Keeps an object.
    pub(crate) fn new(object: T) -> Kept<T> {
        const { assert!(size_of::<T>() > 0, "all objects without bytes have one address") };
        let pointer = Box::into_raw(Box::new(object));
        live::add(pointer.addr(), T::NAME, false);
        Kept { pointer, owned: PhantomData }
    }

    /// Returns the pointer for callers.
    pub(crate) fn pointer(&self) -> *const T {
        self.pointer
    }

    /// Returns the object.
    pub(crate) fn get(&self) -> &T {
        // SAFETY: the object lives as long as `self`, and nothing changes it.
        unsafe { &*self.pointer }
    }
}

impl<T: Object> Drop for Kept<T> {
    fn drop(&mut self) {
        live::forget(self.pointer.addr());
        // SAFETY: the pointer comes from `Box::into_raw` in `new`, and is freed here alone.
        drop(unsafe { Box::from_raw(self.pointer) });
    }
}

/// List of live objects, in debug builds.
#[cfg(debug_assertions)]
mod live {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

    use crate::failure::{Error, argument};

    /// Kind of a live object, and whether the caller releases it.
    struct Live {
        name: &'static str,
        is_owned: bool,
    }

    static OBJECTS: LazyLock<Mutex<HashMap<usize, Live>>> = LazyLock::new(Mutex::default);

    fn lock() -> MutexGuard<'static, HashMap<usize, Live>> {
        OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(address: usize, name: &'static str, is_owned: bool) {
        lock().insert(address, Live { name, is_owned });
    }

    pub(super) fn forget(address: usize) {
        lock().remove(&address);
    }

    pub(super) fn check(address: usize, name: &str) -> Result<(), Error> {
        match lock().get(&address) {
            Some(live) if live.name == name => Ok(()),
            Some(live) => {
                Err(argument(format!("the pointer to an {name} points to an {}", live.name)))
            }
            None => Err(argument(format!("the pointer to an {name} points to no live object"))),
        }
    }

    pub(super) fn remove(address: usize, name: &str) -> bool {
        let mut objects = lock();
        let is_live = objects.get(&address).is_some_and(|live| live.name == name && live.is_owned);
        is_live && objects.remove(&address).is_some()
    }
}

/// Without a list, every pointer counts as one to a live object.
#[cfg(not(debug_assertions))]
mod live {
    use crate::failure::Error;

    pub(super) fn add(_: usize, _: &'static str, _: bool) {}

    pub(super) fn forget(_: usize) {}

    #[inline]
    pub(super) fn check(_: usize, _: &str) -> Result<(), Error> {
        Ok(())
    }

    pub(super) fn remove(_: usize, _: &str) -> bool {
        true
    }
}
