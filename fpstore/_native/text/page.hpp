// Pages of HTML as plain texts.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/span.hpp"

namespace fpstore {

// What named character references stand for, in UTF-8: by names without the first &, most of which
// end with a semicolon (HTML Living Standard, section 13.5).
using Entities = std::unordered_map<std::string, std::string>;

// Whether a text may be a page: its beginning has <html or <!doctype, in any case.
bool may_be_page(Span<const uint8_t> beginning);

// Writes the text of a page without tags, scripts, styles and comments, each as a space, and with
// character references resolved. False for a page of which other rules of Unicode or of HTML have
// to decide: what is written is of no use then.
bool plain_page(Span<const uint8_t> page, const Entities& entities, std::vector<uint8_t>* text);

// The characters of a text, each run of white space as one, and none at its ends.
uint64_t visible_characters(Span<const uint8_t> text);

}  // namespace fpstore
