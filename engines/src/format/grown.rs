//! A vector that only grows, and whose present content can be handed out as an Arrow buffer without a copy.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::ArrowNativeType;

/// Bytes of the first allocation.
const FIRST: usize = 1 << 10;
const ALIGN: usize = 64;

/// Values of one type, appended one behind the other.
#[derive(Debug)]
pub(crate) struct Grown<T> {
    block: Arc<Block>,
    length: usize,
    of: PhantomData<T>,
}

/// Memory that buffers point into. What has been handed out is never written again.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes that a buffer shows were written before it was made and do not change; those behind them are written
// and read by the one vector that owns the block.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: usize) -> Arc<Self> {
        let layout = Layout::from_size_align(bytes.max(FIRST), ALIGN).expect("a dictionary is far smaller than memory");
        // SAFETY: the size is not 0.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        Arc::new(Self { start, layout })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nothing points here any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl<T: ArrowNativeType> Default for Grown<T> {
    fn default() -> Self {
        Self { block: Block::new(FIRST), length: 0, of: PhantomData }
    }
}

impl<T: ArrowNativeType> Grown<T> {
    /// Values so far.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The values.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: `length` values were written from `start` on, which is aligned for every native type.
        unsafe { std::slice::from_raw_parts(self.block.start.as_ptr().cast::<T>(), self.length) }
    }

    /// Appends values.
    pub(crate) fn extend(&mut self, values: &[T]) {
        let size = size_of::<T>();
        let needed = (self.length + values.len()) * size;
        if needed > self.block.layout.size() {
            let block = Block::new(needed.next_power_of_two().max(self.block.layout.size() * 2));
            // SAFETY: the new block is larger than what is written of the old one, and another allocation.
            unsafe {
                self.block.start.as_ptr().copy_to_nonoverlapping(block.start.as_ptr(), self.length * size);
            }
            self.block = block;
        }
        // SAFETY: there is room behind `length`, no buffer shows it, and `values` is borrowed from elsewhere: this vector is
        // borrowed mutably.
        unsafe {
            let end = self.block.start.as_ptr().cast::<T>().add(self.length);
            values.as_ptr().copy_to_nonoverlapping(end, values.len());
        }
        self.length += values.len();
    }

    /// The present values as a buffer.
    pub(crate) fn buffer(&self) -> Buffer {
        // SAFETY: the bytes are written, and the block lives as long as the buffer.
        unsafe {
            Buffer::from_custom_allocation(self.block.start, self.length * size_of::<T>(), Arc::clone(&self.block) as _)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_handed_out_stays(parts in proptest::collection::vec(proptest::collection::vec(any::<i32>(), 0..200), 0..30)) {
            let mut grown = Grown::<i32>::default();
            let mut plain = Vec::new();
            let mut shown = Vec::new();
            for part in parts {
                grown.extend(&part);
                plain.extend_from_slice(&part);
                shown.push((grown.buffer(), plain.clone()));
                prop_assert_eq!(grown.as_slice(), &plain[..]);
            }
            prop_assert_eq!(grown.len(), plain.len());
            drop(grown);
            for (buffer, values) in shown {
                prop_assert_eq!(buffer.typed_data::<i32>(), &values[..]);
            }
        }
    }
}
