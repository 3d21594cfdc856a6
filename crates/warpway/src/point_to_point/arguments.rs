//! What may be sent and received into: plain slices, registered buffers and parts of them.

use warpway_core::memory::Element;
use warpway_host::{BufferView, ElementType};

use crate::buffer::{Buffer, Part};

/// Data to be sent: made from `&[T]`, `&Vec<T>`, `&[T; N]`, `&Buffer<T>` and parts of buffers.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    pub(super) view: BufferView<'a>,
    pub(super) element: ElementType,
}

/// Memory to receive into: made from `&mut [T]`, `&mut Vec<T>`, `&mut [T; N]`, `&mut Buffer<T>`, `&Buffer<T>` and parts of
/// buffers. It is as long as the message.
#[derive(Debug)]
pub struct Incoming<'a> {
    pub(super) view: BufferView<'a>,
    pub(super) element: ElementType,
}

impl<'a> Outgoing<'a> {
    /// Bytes of any kind; `element` is compared with what the receiver says.
    pub fn new(view: impl Into<BufferView<'a>>, element: impl Into<ElementType>) -> Self {
        Self { view: view.into(), element: element.into() }
    }

    fn of<T: Element>(view: impl Into<BufferView<'a>>) -> Self {
        Self::new(view, ElementType::of::<T>())
    }
}

impl<'a> Incoming<'a> {
    /// Bytes of any kind, which may be written; `element` is compared with what the sender says.
    pub fn new(view: impl Into<BufferView<'a>>, element: impl Into<ElementType>) -> Self {
        Self { view: view.into(), element: element.into() }
    }

    fn of<T: Element>(view: impl Into<BufferView<'a>>) -> Self {
        Self::new(view, ElementType::of::<T>())
    }
}

impl<'a, T: Element> From<&'a [T]> for Outgoing<'a> {
    fn from(data: &'a [T]) -> Self {
        Self::of::<T>(data)
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Outgoing<'a> {
    fn from(data: &'a Vec<T>) -> Self {
        Self::of::<T>(data.as_slice())
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Outgoing<'a> {
    fn from(data: &'a [T; N]) -> Self {
        Self::of::<T>(data.as_slice())
    }
}

impl<'a, T: Element> From<&'a Buffer<T>> for Outgoing<'a> {
    fn from(data: &'a Buffer<T>) -> Self {
        Self::of::<T>(data)
    }
}

impl<'a, T: Element> From<Part<'a, T>> for Outgoing<'a> {
    fn from(data: Part<'a, T>) -> Self {
        Self::of::<T>(data)
    }
}

impl<'a, T: Element> From<&'a mut [T]> for Incoming<'a> {
    fn from(data: &'a mut [T]) -> Self {
        Self::of::<T>(data)
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for Incoming<'a> {
    fn from(data: &'a mut Vec<T>) -> Self {
        Self::of::<T>(data.as_mut_slice())
    }
}

impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for Incoming<'a> {
    fn from(data: &'a mut [T; N]) -> Self {
        Self::of::<T>(data.as_mut_slice())
    }
}

impl<'a, T: Element> From<&'a Buffer<T>> for Incoming<'a> {
    fn from(data: &'a Buffer<T>) -> Self {
        Self::of::<T>(data)
    }
}

impl<'a, T: Element> From<&'a mut Buffer<T>> for Incoming<'a> {
    fn from(data: &'a mut Buffer<T>) -> Self {
        Self::of::<T>(&*data)
    }
}

impl<'a, T: Element> From<Part<'a, T>> for Incoming<'a> {
    fn from(data: Part<'a, T>) -> Self {
        Self::of::<T>(data)
    }
}
