//! Relative links of the project's pages lead to files that exist.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::run::root;

/// Folders that hold pages.
const FOLDERS: [&str; 4] = [".", "docs", "docs/tutorials", "benchmarks"];

/// # Errors
/// All broken links.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut broken = Vec::new();
    for folder in FOLDERS.map(|folder| root().join(folder)) {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let page = entry?.path();
            if page.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&page)?;
                let missing = missing(&folder, &text);
                broken.extend(missing.map(|link| format!("{}: {}", page.display(), link.display())));
            }
        }
    }
    ensure!(broken.is_empty(), "links to files that do not exist:\n{}", broken.join("\n"));
    Ok(())
}

fn missing(folder: &Path, text: &str) -> impl Iterator<Item = PathBuf> {
    targets(text).map(|target| folder.join(target)).filter(|path| !path.exists())
}

/// What `[…](target)` names, without fragments; other sites are not looked at.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let files = links.map(|(target, _)| target.split('#').next().unwrap_or_default());
    files.filter(|target| !target.is_empty() && !target.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_leads_somewhere() {
        check().unwrap();
    }

    #[test]
    fn only_files_are_looked_at() {
        let text = "[a](b.md) and ![c](d/e.svg), [f](https://g.h/i), [j](#k), [l](m.md#n)";
        assert_eq!(targets(text).collect::<Vec<_>>(), ["b.md", "d/e.svg", "m.md"]);
        assert_eq!(missing(&root(), text).count(), 3);
        assert_eq!(missing(&root(), "[x](README.md)").count(), 0);
    }
}
