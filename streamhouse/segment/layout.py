"""Constants, limits and fixed layouts of STRM v1. `docs/format/strm-v1.md` is the authority.

Everything here is part of the format: a change needs a new format version. All fixed integers are
big-endian, as in the Kafka batches inside. The limits exist so that hostile lengths are refused
before anything is allocated for them.
"""

from struct import Struct

from streamhouse.model.limits import FRAME_BYTES_MAX, KIB, MIB

Buffer = bytes | bytearray | memoryview

VERSION = 1
MAGIC_FILE = b"STRM"
MAGIC_BLOCK = b"SBLK"
MAGIC_END = b"MRTS"

CODEC_STORED = 0
CODEC_LZ4 = 1
CODEC_NAMES = {CODEC_STORED: "stored", CODEC_LZ4: "lz4"}

# magic, version, flags, topic id, partition, crc of what stands before it
FILE_HEADER = Struct(">4sHH16sII")
# magic, codec, 3 zero bytes, base and last offset, min and max timestamp, first and last epoch,
# records, control records, raw length, stored length; followed by the crc
BLOCK_HEADER_FIELDS = Struct(">4sB3sqqqqiiIIII")
# blocks, index offset, index bytes, sections bytes, base, end, records, min and max timestamp,
# index crc, sections crc, flags, version; followed by the crc and the end magic
FOOTER_FIELDS = Struct(">IQIIqqQqqIIHH")
SECTION_HEADER = Struct(">HI")  # tag, payload bytes
CRC = Struct(">I")

FILE_HEADER_BYTES = FILE_HEADER.size
BLOCK_HEADER_BYTES = BLOCK_HEADER_FIELDS.size + CRC.size
FOOTER_BYTES = FOOTER_FIELDS.size + CRC.size + len(MAGIC_END)
SEGMENT_BYTES_MIN = FILE_HEADER_BYTES + FOOTER_BYTES

# One read of this many bytes from the end nearly always brings index, sections and footer.
TAIL_READ_BYTES = 64 * KIB

BLOCK_BYTES_MAX = (
    FRAME_BYTES_MAX + 28 * MIB
)  # raw or stored; one batch of the largest frame must fit
INDEX_BYTES_MAX = 64 * MIB
SECTIONS_BYTES_MAX = 256 * MIB
LZ4_RATIO_MAX = 255  # no LZ4 block expands more than this, whatever it claims
LZ4_WORTH_PERCENT = 95  # a block is stored compressed only if it shrinks below this share

OFFSET_MAX = 2**63 - 1
EPOCH_MAX = 2**31 - 1
