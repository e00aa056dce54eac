"""Addresses of files that are published on Google Drive."""


def urls(file: str) -> tuple[str, str]:
    """The file itself, by its id, and the page on which a person can download it.

    The page is never the file, so it only appears in the message that says which file to download by hand.
    """
    return (
        f"https://drive.usercontent.google.com/download?id={file}&export=download&confirm=t",
        f"https://drive.google.com/file/d/{file}/view",
    )
