// The kernels of one instruction set. Each target_*.cpp compiles them in its own namespace: of what
// two objects share the linker keeps one, and that might be the one that this machine cannot run.
#pragma once
#include "build/block_encode.hpp"
#include "build/sort.hpp"
#include "build/table_sums.hpp"
#include "columns/probe.hpp"
#include "format/block_decode.hpp"
#include "isa/kernels.hpp"
#include "pairs/greedy.hpp"
#include "pairs/groups.hpp"
#include "pairs/links.hpp"
#include "search/locate.hpp"
#include "search/probe.hpp"
#include "search/scan.hpp"
#include "text/bit_planes.hpp"
#include "text/minima.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// The kernels that read blocks, by the codec of the table.
template <class Isa>
Status decode_blocks(const TableView& t, const BlockRange& range, Decoded* to, Fault* fault) {
  return t.codec == Codec::huffman ? decode_all<HuffmanBlocks<Isa>>(t, range, to, fault)
                                   : decode_all<EliasFanoBlocks<Isa>>(t, range, to, fault);
}

template <class Isa>
Status scan(const TableView& t, const BlockRange& range, const Queries& queries,
            const ScanOptions& options, Sink* sink, Fault* fault) {
  return t.codec == Codec::huffman
             ? scan_blocks<HuffmanBlocks<Isa>>(t, range, queries, options, sink, fault)
             : scan_blocks<EliasFanoBlocks<Isa>>(t, range, queries, options, sink, fault);
}

template <class Isa>
Status locate(const TableView& t, const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks,
              Stopper* stop, Fault* fault) {
  return t.codec == Codec::huffman
             ? locate_in_blocks<HuffmanBlocks<Isa>>(t, fingerprints, blocks, ranks, stop, fault)
             : locate_in_blocks<EliasFanoBlocks<Isa>>(t, fingerprints, blocks, ranks, stop, fault);
}

// The tables of a probe have one codec.
template <class Isa>
Status probe(const TableProbes& tables, const Queries& queries, const ProbeOptions& options,
             Sink* sink, ProbeCounters* counters, Fault* fault) {
  return tables.first == tables.end || tables.probes->table->codec == Codec::huffman
             ? probe_blocks<HuffmanBlocks<Isa>>(tables, queries, options, sink, counters, fault)
             : probe_blocks<EliasFanoBlocks<Isa>>(tables, queries, options, sink, counters, fault);
}

template <class Isa>
constexpr Kernels make_set(const char* name) {
  using W = typename Isa::W;
  // What does not depend on where the leading word ends is compiled once for both narrow widths.
  using Whole = Width<W::kWords * 64>;
  using Row = typename W::Row;
  return Kernels{name,
                 permute<Whole>,
                 count_permuted<Whole>,
                 scatter_permuted<Whole>,
                 permute_sort<Whole>,
                 sort_keys<Whole>,
                 sort_pairs<Whole>,
                 histogram<Row>,
                 digest<Row>,
                 encode<W>,
                 encode_finish<W>,
                 decode_blocks<Isa>,
                 scan<Isa>,
                 locate<Isa>,
                 probe<Isa>,
                 within_radius<Isa>};
}

// What column tables and joins compare tags with.
template <class Tags>
constexpr ColumnKernels kColumns{
    {probe_columns<Tags, 1>, probe_columns<Tags, 2>, probe_columns<Tags, 4>},
    {nullptr, near_rows<2>, near_rows<4>}};
template <class Tags>
constexpr PairKernels kPairs{{join_rows<Tags, 1>, join_rows<Tags, 2>, join_rows<Tags, 4>},
                             {link_rows<Tags, 1>, link_rows<Tags, 2>, link_rows<Tags, 4>},
                             {group_rows<1>, group_rows<2>, group_rows<4>},
                             {link_group<1>, link_group<2>, link_group<4>}};

template <template <class> class Isa, class Tags, class Text>
constexpr KernelSets make_sets(const char* name) {
  constexpr size_t kBytes = Isa<Width<64>>::kVectorBytes;
  return KernelSets{make_set<Isa<Width<32>>>(name),
                    make_set<Isa<Width<64>>>(name),
                    make_set<Isa<Width<128>>>(name),
                    make_set<Isa<Width<256>>>(name),
                    &kColumns<Tags>,
                    &kPairs<Tags>,
                    {Text::put_ascii, Text::word_starts, Text::char_starts, Text::hash_shingles,
                     count_bits<kBytes>, lower_minima<kBytes, Isa<Width<64>>::kMinimaVectors>}};
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
