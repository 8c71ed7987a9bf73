// From sorted keys, or rows, to the sections of a column table or a row file.
#pragma once
#include "columns/column_header.hpp"

namespace fpstore {

// What is carried from feed to feed: the last key or row.
struct ColumnFeed {
  uint64_t last[4];
  bool any = false;
};

// Counts the keys of each bucket, and cuts them into tags and rests. Returns the place of the first key that does not ascend or has
// bits below its rest, or n.
size_t cut_keys(const ColumnHeader& header, const uint64_t* keys, size_t n, ColumnFeed* feed, uint32_t* bucket_counts, uint8_t* tags,
                uint8_t* rests);

// Counts the rows of each bucket; returns the first that does not ascend, or n.
size_t count_rows(const ColumnHeader& header, const uint64_t* rows, size_t n, ColumnFeed* feed, uint32_t* bucket_counts);

}  // namespace fpstore
