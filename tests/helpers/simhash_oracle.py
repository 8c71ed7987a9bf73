"""SimHash as its docstring says, one step after the other: what the kernel must equal."""

import hashlib
import re
import unicodedata

import numpy as np
import regex
import xxhash

from fpstore.hashing.normal import CharColumns, NormalForm, is_unspaced

#: Each character as it is, as columns of its tables.
AS_THEY_ARE = CharColumns(
    bytes(range(128)), np.zeros(0x1100, np.int32), np.zeros(256, np.uint32), b""
)

DEFAULTS = {
    "shingle": "auto",
    "size": 1,
    "weighting": "log",
    "width": 64,
    "hash": "xxh64",
    "seed": 0,
    "normalize": True,
    "case": "fold",
    "punctuation": "space",
    "marks": "keep",
    "digits": "keep",
    "spaces": "single",
    "hyphens": "keep",
    "stop_words": (),
    "order": "sorted",
}


def normal_form_of(hasher):
    """Return the normal form that the parameters of a hasher of texts describe."""
    return NormalForm(
        units=hasher.shingle,
        normalize=hasher.normalize,
        case=hasher.case,
        punctuation=hasher.punctuation,
        marks=hasher.marks,
        digits=hasher.digits,
        spaces=hasher.spaces,
        hyphens=hasher.hyphens,
    )


def is_ignored(char):
    return (
        bool(regex.match(r"\p{Default_Ignorable_Code_Point}|(?=\p{Cc})\P{White_Space}", char))
        and not char.isspace()
    )


#: BlockPacking of Unicode whose marks fold.
FOLDED = (
    "Combining_Diacritical_Marks",
    "Combining_Diacritical_Marks_Extended",
    "Combining_Diacritical_Marks_Supplement",
    "Combining_Diacritical_Marks_For_Symbols",
    "Combining_Half_Marks",
    "Cyrillic",
    "Cyrillic_Extended_A",
    "Cyrillic_Extended_B",
    "Cyrillic_Extended_D",
    "Hebrew",
    "Alphabetic_Presentation_Forms",
    "Arabic",
    "Arabic_Extended_A",
    "Arabic_Extended_B",
    "Arabic_Extended_C",
    "Syriac",
)
MARK = regex.compile(r"(?=\p{M})[" + "".join(r"\p{Block=" + block + "}" for block in FOLDED) + "]")


def is_diacritic(char):
    return char == "\u0640" or bool(MARK.match(char))


def form_of(text, settings):
    form = words_of(text, settings)
    return form if form else words_of(text, settings | {"punctuation": "keep"})


def words_of(text, settings):
    if settings["hyphens"] == "join":
        text = regex.sub(
            r"(?<=[\p{L}\p{M}])[-\u2010\xad][\s--[\n\v\f\r\x85\u2028\u2029]]*+\R\s*(?=[\p{L}--\p{Lu}])",
            "",
            text,
            flags=regex.V1,
        )
    text = "".join(char for char in text if not is_ignored(char))
    if settings["marks"] == "fold":
        text = "".join(
            char for char in unicodedata.normalize("NFKD", text) if not is_diacritic(char)
        )
    if settings["normalize"]:
        text = unicodedata.normalize("NFKC", text)
    text = {"fold": text.casefold, "lower": text.lower, "keep": lambda: text}[settings["case"]]()
    out = []
    for char in text:
        mark = settings["marks"] != "punctuation" and unicodedata.category(char) in (
            "Mn",
            "Mc",
            "Me",
        )
        if char.isspace():
            out.append(" " if settings["spaces"] == "single" else "")
        elif not mark and not re.match(r"\w", char):
            out.append({"space": " ", "keep": char, "remove": ""}[settings["punctuation"]])
        elif re.match(r"\d", char):
            out.append(char if settings["digits"] == "keep" else "0")
        else:
            out.append(f" {char} " if settings["shingle"] == "auto" and is_unspaced(char) else char)
    return re.sub(" +", " ", "".join(out)).strip(" ")


def shingles_of(text, **parameters):
    settings = DEFAULTS | parameters
    form = form_of(text, settings)
    units, joint = (list(form), "") if settings["shingle"] == "chars" else (form.split(" "), " ")
    if form == "":
        return []
    size = settings["size"]
    shingles = [units[i : i + size] for i in range(max(1, len(units) - size + 1))]
    stops = set(settings["stop_words"])
    return [joint.join(shingle) for shingle in shingles if not stops or stops & set(shingle)]


def avalanche(h):
    h = (h ^ h >> 33) * 0xC2B2AE3D27D4EB4F % 2**64
    h = (h ^ h >> 29) * 0x165667B19E3779F9 % 2**64
    return h ^ h >> 32


def hash_of(feature, settings):
    """Return the hash of a feature as a number of `width` bits."""
    data, width = feature.encode("utf-8", "surrogatepass"), settings["width"]
    if settings["hash"] == "md5":
        return int.from_bytes(hashlib.md5(data).digest(), "big") % 2**width
    if settings["hash"] == "blake2b":
        key = settings["seed"].to_bytes(8, "little") if settings["seed"] else b""
        return int.from_bytes(
            hashlib.blake2b(data, digest_size=width // 8, key=key).digest(), "big"
        )
    if settings["hash"] == "xxh64":
        h = xxhash.xxh64_intdigest(data, settings["seed"])
    else:
        h = 0xCBF29CE484222325
        for byte in data:
            h = (h ^ byte) * 0x100000001B3 % 2**64
    words = [h] + [avalanche((h + k * 0x9E3779B185EBCA87) % 2**64) for k in range(1, width // 64)]
    return sum(word << 64 * (len(words) - 1 - i) for i, word in enumerate(words)) >> max(
        64 - width, 0
    )


def sign_bits(features, **parameters):
    settings = DEFAULTS | parameters
    sums = [0] * settings["width"]
    for feature, weight in features:
        value = hash_of(feature, settings)
        for bit in range(settings["width"]):
            sums[bit] += weight if value >> bit & 1 else -weight
    return sum(1 << bit for bit, total in enumerate(sums) if total > 0)


def weights_of(text, **parameters):
    """Return the features with their weights."""
    settings = DEFAULTS | parameters
    counts: dict[str, int] = {}
    for shingle in shingles_of(text, **parameters):
        counts[shingle] = counts.get(shingle, 0) + 1
    rule = {"count": lambda n: n, "set": lambda n: 1, "log": lambda n: len(bin(n)) - 2}[
        settings["weighting"]
    ]
    return {shingle: rule(count) for shingle, count in counts.items()}


def oracle(text, **parameters):
    return sign_bits(weights_of(text, **parameters).items(), **parameters)
