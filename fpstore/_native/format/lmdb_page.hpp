// The pages of LMDB 0.9, and what is behind them in a sealed file (docs/format.md, "LMDB files"):
// flags, sizes, and the offsets of fields.
#pragma once
#include "format/common.hpp"

namespace fpstore::lmdb {

constexpr uint64_t kNoPage = UINT64_MAX;  // the root of an empty tree

// A page: its number, flags, the end of the pointers and the start of the nodes. The first overflow
// page of a value has their count instead of these two.
constexpr unsigned kFlagsAt = 10, kLowerAt = 12, kUpperAt = 14, kCountAt = 12;
constexpr unsigned kPageHead = 16, kPointer = 2;  // bytes
constexpr unsigned kBranch = 1, kLeaf = 2, kOverflow = 4, kMeta = 8;

// A node: the size of its value, or the number of a child, then flags and the size of its key.
constexpr unsigned kNodeFlagsAt = 4, kKeyBytesAt = 6;
constexpr unsigned kNodeHead = 8;         // bytes
constexpr unsigned kBigData = 1;          // flag: the value lies on overflow pages
constexpr uint64_t kMaxNodeBytes = 2038;  // LMDB wants room for two in a page of 4096 bytes

// A metadata page.
constexpr unsigned kMagicAt = 16, kMapBytesAt = 32, kPageBytesAt = 40, kEnvironmentFlagsAt = 44,
                   kFreeRootAt = 80;
// of the tree of keys
constexpr unsigned kTreeFlagsAt = 92, kDepthAt = 94, kBranchesAt = 96, kLeavesAt = 104,
                   kOverflowPagesAt = 112, kEntriesAt = 120, kRootAt = 128;
constexpr unsigned kLastPageAt = 136, kTransactionAt = 144, kMetaBytes = 152;
constexpr uint64_t kMagic = 0x1BEEFC0DE;        // and the version
constexpr unsigned kEnvironmentFlags = 0x4008;  // integer page numbers, a file without a folder

// Behind the pages: zeros, at least as many, then the checksums of chunks of the pages, and of
// groups of these checksums.
constexpr uint64_t kPaddingBytes = 1 << 18, kChunkBytes = 4096, kGroupChunks = 512;

}  // namespace fpstore::lmdb
