//! How tables look.

use comfy_table::{LineStyle, TableStyle};

/// A line below the header, and no other.
pub(crate) const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('═').junction('═'));
