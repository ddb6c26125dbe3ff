"""Small tables as tools write them, by their documentation: what comes out, or what is said.

A case is the tool, the file's name and text, and what is expected: row names, feature names and the total of the
counts, words of each warning, or words of the refusal. Warnings that are not expected fail the test.
"""

import csv
import gzip
import re
import warnings
from types import MappingProxyType
from typing import Any, NamedTuple

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.io import mmwrite
from scipy.sparse import coo_array

import bayesnmf
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.files import read_counts

TURNED = "features in their rows"


class Case(NamedTuple):
    tool: str
    name: str
    text: str
    rows: str = ""
    features: str = ""
    total: float = 0
    said: tuple[str, ...] = ()
    refused: str = ""
    how: Any = MappingProxyType({})


def tabs(text):
    """Return a text with tabs in place of runs of two or more spaces, without the margin."""
    return re.sub(r" {2,}", "\t", "\n".join(line.strip() for line in text.strip().splitlines())) + "\n"


CASES = [
    # --- counters of programs (F8) and annotation of genes
    Case("HTSeq, files joined under a header", "htseq.tsv", tabs("""
        gene  s1  s2
        ENSG1  3  1
        ENSG2  0  5
        __no_feature  900  800
        __ambiguous  10  20
        __too_low_aQual  0  0
        __not_aligned  50  60
        __alignment_not_unique  70  80"""),
        "s1 s2", "ENSG1 ENSG2", 9, (TURNED, "could not count for any feature, left out: '__no_feature'")),
    Case("STAR, ReadsPerGene of samples joined", "star.tsv", tabs("""
        gene_id  s1  s2
        N_unmapped  900  800
        N_multimapping  90  80
        N_noFeature  9  8
        N_ambiguous  1  2
        ENSG1  3  1
        ENSG2  0  5"""),
        "s1 s2", "ENSG1 ENSG2", 9, (TURNED, "left out: 'N_unmapped'")),
    Case("STAR, as it is written", "ReadsPerGene.out.tab",
         "N_unmapped\t9\t8\t7\nN_multimapping\t1\t2\t2\nENSG1\t3\t0\t3\n",
         refused="must name the columns, but holds counts .*keep of STAR's three columns that of the strand"),
    Case("CITE-seq-Count, as a table", "tags.csv", ",cell1,cell2\nCD3-ACGT,5,6\nCD4-TTGA,1,0\nunmapped,99,80\n",
         "cell1 cell2", "CD3-ACGT CD4-TTGA", 12, ("left out: 'unmapped'",), how={"transpose": True}),
    Case("counters in columns", "cells.csv", ",ENSG1,ENSG2,__no_feature,__ambiguous\nc1,1,2,90,9\nc2,3,0,80,8\n",
         "c1 c2", "ENSG1 ENSG2", 6, ("left out: '__no_feature', '__ambiguous'",)),
    Case("HUMAnN, pathways by taxon", "humann.tsv", tabs("""
        # Pathway  s1_Abundance  s2_Abundance
        UNMAPPED  187  90
        UNINTEGRATED  87  30
        PWY-1: a  7  3
        PWY-2: b  2  8"""),
        "s1_Abundance s2_Abundance", "'PWY-1: a' 'PWY-2: b'", 20, ("left out: 'UNMAPPED'",), how={"transpose": True}),
    Case("QIIME 2, whose Unassigned are sequences that were counted", "table.tsv", tabs("""
        # Constructed from biom file
        #OTU ID  s1  s2
        k__Bacteria;p__Firmicutes  3.0  1.0
        k__Archaea;p__X  1.0  2.0
        Unassigned  2.0  4.0"""),
        "s1 s2", "k__Bacteria;p__Firmicutes k__Archaea;p__X Unassigned", 13, (TURNED,)),
    Case("QIIME, with taxonomy and confidence", "taxa.tsv", tabs("""
        #OTU ID  s1  s2  taxonomy  Confidence
        a1  3.0  1.0  k__Bacteria  0.99
        a2  1.0  2.0  k__Archaea  0.7"""),
        "s1 s2", "a1 a2", 7, (TURNED, "BIOM; left out: taxonomy, Confidence")),
    Case("words that are counters elsewhere", "docs.csv",
         "doc,cat,ambiguous,unmapped,dog,tree\nd1,1,2,0,4,1\nd2,0,3,1,5,0\n",
         "d1 d2", "cat ambiguous unmapped dog tree", 17),
    Case("featureCounts, summary", "counts.txt.summary",
         "Status\ta.bam\tb.bam\nAssigned\t900\t800\nUnassigned_Unmapped\t5\t6\nUnassigned_NoFeatures\t7\t8\n",
         refused="table of featureCounts without counts of features: .*Unassigned_Unmapped.*no .summary"),
    # --- tables of one sample (F9)
    Case("salmon", "quant.sf", tabs("""
        Name  Length  EffectiveLength  TPM  NumReads
        ENST1  900  700.5  12.5  30
        ENST2  400  200.5  2.5  7"""),
        "NumReads", "ENST1 ENST2", 37, (TURNED, "salmon; left out: Length, EffectiveLength, TPM; it is one sample")),
    Case("salmon, columns in another order", "genes.tsv", tabs("""
        gene  NumReads  TPM  Length
        ENST1  30  12.5  900
        ENST2  7  2.5  400"""),
        "NumReads", "ENST1 ENST2", 37, (TURNED, "salmon; left out: TPM, Length; it is one sample")),
    Case("tximport, as.data.frame", "txi.csv",
         ",abundance.a,abundance.b,counts.a,counts.b,length.a,length.b,countsFromAbundance\n"
         "ENST1,1.5,2.5,30,1,900.5,901,no\nENST2,2.5,3.5,7,0,400,401,no\n",
         "counts.a counts.b", "ENST1 ENST2", 38, (TURNED, "tximport; left out: abundance.a, .*, length.b, countsFrom")),
    Case("counts. beside others", "x.csv", ",abundance.a,counts.a\nA,1,30\nB,2,7\n", "A B", "abundance.a counts.a", 40),
    Case("kallisto", "abundance.tsv", tabs("""
        target_id  length  eff_length  est_counts  tpm
        ENST1  900  700.5  30  12.5
        ENST2  400  200.5  7  2.5"""),
        "est_counts", "ENST1 ENST2", 37, (TURNED, "kallisto; left out: length, eff_length, tpm")),
    Case("RSEM, genes", "s1.genes.results", tabs("""
        gene_id  transcript_id(s)  length  effective_length  expected_count  TPM  FPKM
        ENSG1  ENST1,ENST2  900  700.5  30  12.5  11.5
        ENSG2  ENST3  400  200.5  7  2.5  2.1"""),
        "expected_count", "ENSG1 ENSG2", 37, (TURNED, "RSEM; left out: .*TPM, FPKM")),
    Case("RSEM, isoforms", "s1.isoforms.results", tabs("""
        transcript_id  gene_id  length  effective_length  expected_count  TPM  FPKM  IsoPct
        ENST1  ENSG1  900  700.5  30  12.5  11.5  60
        ENST2  ENSG1  400  200.5  7  2.5  2.1  40"""),
        "expected_count", "ENST1 ENST2", 37, (TURNED, "RSEM; left out: .*IsoPct")),
    Case("StringTie", "gene_abund.tab", tabs("""
        Gene ID  Gene Name  Reference  Strand  Start  End  Coverage  FPKM  TPM
        ENSG1  A  1  +  5  90  3.5  1.5  2.5"""),
        refused="table of StringTie without counts of features: prepDE.py"),
    Case("Bracken", "s1.bracken.tsv", tabs("""
        name  taxonomy_id  taxonomy_lvl  kraken_assigned_reads  added_reads  new_est_reads  fraction_total_reads
        Bacteroides  816  G  10  5  15  0.6
        Prevotella  838  G  8  2  10  0.4"""),
        "new_est_reads", "Bacteroides Prevotella", 25, (TURNED, "Bracken; left out: taxonomy_id")),
    Case("combine_bracken_outputs", "bracken.tsv", tabs("""
        name  taxonomy_id  taxonomy_lvl  s1_num  s1_frac  s2_num  s2_frac
        Bacteroides  816  G  15  0.6  3  0.3
        Prevotella  838  G  10  0.4  7  0.7"""),
        "s1_num s2_num", "Bacteroides Prevotella", 35, (TURNED, "Bracken; left out: taxonomy_id, .*, s1_frac")),
    Case("Kraken", "report.txt", " 12.5\t1000\t1000\tU\t0\tunclassified\n 87.5\t7000\t10\tR\t1\troot\n",
         refused="not a report of Kraken; make a table"),
    Case("MetaPhlAn", "profile.txt", tabs("""
        #mpa_v30
        #clade_name  NCBI_tax_id  relative_abundance  additional_species
        k__Bacteria  2  100.0  x
        k__Bacteria|p__F  1239  60.0  y"""),
        refused="table of MetaPhlAn without counts of features"),
    # --- columns about the lines (F7)
    Case("CosMx", "exprMat_file.csv", "fov,cell_ID,AATK,ABL1,ACTB\n1,0,90,80,70\n1,1,3,0,1\n1,2,0,2,4\n2,1,1,1,1\n",
         "1_1 1_2 2_1", "AATK ABL1 ACTB", 13, ("CosMx; left out: 1 lines of what is in no cell",)),
    Case("batches and identifiers before genes", "x.csv", "batch,cell_id,g1,g2\n1,11,3,0\n1,12,0,2\n2,13,1,4\n",
         "11 12 13", "g1 g2", 10, ("no counts, left out: 'batch'", "'cell_id' of .* is read as the names of the rows")),
    Case("an index of pandas before identifiers", "x.csv", ",sample_id,g1,g2\n0,7,3,0\n1,9,0,2\n2,8,1,4\n",
         "7 9 8", "g1 g2", 10, ("'sample_id' of .* is read as the names of the rows",)),
    Case("coordinates", "x.csv", "barcode,x,y,g1,g2\nAC-1,10,20,3,0\nAG-1,11,21,0,2\nAT-1,12,25,1,4\n",
         "AC-1 AG-1 AT-1", "g1 g2", 10, ("left out: 'x', 'y'",)),
    Case("what Seurat computes", "x.csv",
         "barcode,nCount_RNA,nFeature_RNA,percent.mt,g1,g2\nA,3,1,0.5,3,0\nB,2,1,0.1,0,2\n",
         "A B", "g1 g2", 5, ("left out: 'nCount_RNA', 'nFeature_RNA', 'percent.mt'",)),
    Case("what scanpy computes, after the counts", "x.csv",
         "barcode,g1,g2,n_genes_by_counts,total_counts,leiden\nA,3,0,1,3,0\nB,0,2,1,2,1\n",
         "A B", "g1 g2", 5, ("left out: 'n_genes_by_counts', 'total_counts', 'leiden'",)),
    Case("PLINK", "x.raw", "FID IID PAT MAT SEX PHENOTYPE rs1_A rs2_G\nF1 I1 0 0 1 2 0 1\nF2 I2 0 0 2 1 2 1\n",
         "I1 I2", "rs1_A rs2_G", 4, ("PLINK; left out: FID, PAT, MAT, SEX, PHENOTYPE",)),
    Case("mothur, shared", "x.shared",
         "label\tGroup\tnumOtus\tOtu001\tOtu002\n0.03\tF3D0\t2\t5\t1\n0.03\tF3D1\t2\t0\t7\n",
         "F3D0 F3D1", "Otu001 Otu002", 13, ("mothur; left out: label, numOtus",)),
    Case("mothur, count table", "x.count_table",
         "Representative_Sequence\ttotal\tF3D0\tF3D1\nM1\t6\t5\t1\nM2\t7\t0\t7\n",
         "F3D0 F3D1", "M1 M2", 13, (TURNED, "mothur; left out: total")),
    Case("GTEx", "x.gct", "#1.2\n2\t2\nName\tDescription\ts1\ts2\nENSG1\tDDX11L1\t3\t1\nENSG2\tWASH7P\t0\t5\n",
         "s1 s2", "ENSG1 ENSG2", 9, (TURNED, "GCT; left out: Description")),
    Case("genes with their symbols and places", "x.tsv", tabs("""
        gene_id  gene_name  chr  start  end  strand  s1  s2
        ENSG1  A1BG  19  100  900  -  3  1
        ENSG2  NAT2  8  200  700  +  0  5"""),
        "s1 s2", "ENSG1 ENSG2", 9, (TURNED, "left out: 'gene_name', 'chr', 'start', 'end', 'strand'")),
    Case("MERSCOPE", "cell_by_gene.csv", "cell,PDK4,CCL26,Blank-1\n110,3,0,0\n111,0,2,1\n115,1,4,0\n",
         "110 111 115", "PDK4 CCL26 Blank-1", 11, ("'cell' of .* is read as the names of the rows",)),
    Case("plots of years", "x.csv", "site,year,bufo,rana,hyla\nA,1998,3,0,1\nB,1999,0,2,0\nC,1999,1,4,2\n",
         "A B C", "bufo rana hyla", 13, ("left out: 'year'",)),
    Case("plates and wells", "x.csv",
         "plate,well,g1,g2,g3,g4,g5\nP1,A1,1,0,2,0,1\nP1,A2,0,3,1,1,0\nP2,A1,2,1,0,0,1\nP2,A2,1,1,1,1,1\n",
         "P1_A1 P1_A2 P2_A1 P2_A2", "g1 g2 g3 g4 g5", 18, ("'plate' and 'well', which together name the rows",)),
    Case("MaxQuant", "proteinGroups.txt", tabs("""
        Protein IDs  Gene names  Number of proteins  Mol. weight [kDa]  Intensity a  MS/MS count a  MS/MS count b
        P1;P2  G1  2  9.5  90  3  0
        P3  G3  1  90.5  80  1  4"""),
        "'MS/MS count a' 'MS/MS count b'", "P1;P2 P3", 8,
        (TURNED, "MaxQuant; left out: Gene names, Number of proteins, Mol. weight .kDa., Intensity a")),
    Case("MaxQuant, intensities alone", "proteinGroups.txt",
         "Protein IDs\tMajority protein IDs\tIntensity a\tMS/MS count\nP1;P2\tP1\t9\t3\n",
         refused="table of MaxQuant without counts of features: intensities are no counts; .*'MS/MS count ...'"),
    Case("proteins of anybody", "x.csv", "Protein IDs,a,b\nP1,3,0\nP3,1,4\n", "a b", "P1 P3", 8, (TURNED,)),
    Case("Xenium, molecules", "transcripts.csv",
         "transcript_id,cell_id,overlaps_nucleus,feature_name,x_location,y_location,z_location,qv\n"
         "1,5,1,ACTB,2.5,3.5,1.0,40\n",
         refused="it lists molecules: count them, as pd.crosstab"),
    # --- headers that are features (no false alarm)
    Case("words of texts", "docs.csv",
         "doc,batch,cat,dog,label,total,x,y,year\nd1,1,0,3,0,0,1,0,2\nd2,0,2,0,4,0,0,1,0\nd3,2,1,1,0,1,0,0,1\n",
         "d1 d2 d3", "batch cat dog label total x y year", 20),
    Case("words of texts, as they came", "docs.csv",
         "doc,the,year,label,cat,batch\nd1,9,0,3,0,0\nd2,0,2,0,4,1\nd3,2,1,1,0,0\n",
         "d1 d2 d3", "the year label cat batch", 23),
    Case("words of texts, the first in each", "docs.csv",
         ",year,batch,label,start,end,volume,x,id\nd1,3,0,3,0,0,1,0,1\nd2,1,2,0,4,1,0,1,0\nd3,2,1,1,0,0,2,0,1\n",
         "d1 d2 d3", "year batch label start end volume x id", 24),
    Case("letters", "letters.csv", "text,x,y,z,a,b\nt1,0,1,0,9,2\nt2,1,0,0,7,3\nt3,0,2,1,8,1\n",
         "t1 t2 t3", "x y z a b", 35),
    Case("features alone", "x.csv", "x,y,z\n1,2,3\n4,5,6\n7,8,8\n", "0 1 2", "x y z", 44),
    Case("all numbers are counts if it is said", "x.csv", "batch,cell_id,g1\n1,11,3\n1,12,0\n2,13,1\n",
         "0 1 2", "batch cell_id g1", 44, how={"layout": "wide"}),
    Case("conditions that are samples", "x.csv", "gene,WT,treatment\nA,3,2\nB,0,7\nC,4,1\n",
         "WT treatment", "A B C", 17, (TURNED,)),
    Case("days that are samples", "x.csv", ",control,day_1,day_7\nA,3,2,1\nB,0,2,1\nC,4,1,9\n",
         "A B C", "control day_1 day_7", 23),
    Case("genes that are words", "x.csv", "sample,CD3,CD4,AGE,SEX2\nA,3,2,1,0\nB,0,2,0,3\nC,4,1,7,1\n",
         "A B C", "CD3 CD4 AGE SEX2", 24),
    Case("fractions beside counts", "x.csv", "sample,ratio,g1,g2,g3\na,0.517,1,2,0\nb,60.213,0,1,3\nc,71.381,2,2,1\n",
         "a b c", "ratio g1 g2 g3", 144.111, ("has fractions in 'ratio', and whole numbers beside",)),
    Case("cells of Xenium", "cells.csv",
         "cell_id,x_centroid,y_centroid,transcript_counts,cell_area\naa,1.5,2.5,20,33.5\n",
         refused="all of its columns are about its rows"),
    Case("HUMAnN, by taxa", "x.tsv", tabs("""
        # Gene Family  s1  s2
        A  7  3
        A|g__B  4  1"""),
        "s1 s2", "A A|g__B", 15, (TURNED, r"features are parts of others, as 'A\|g__B' is of 'A'")),
    # --- long tables (F18)
    *(
        Case(f"orders under {header}", "x.csv", f"{header}\n1,10,2\n1,11,1\n2,10,5\n", "1 2", "10 11", 8)
        for header in ("customer_id,product_id,quantity", "user_id,artist_id,play_count", "doc_id,term_id,tf",
                       "customer,product,quantity", "userID,artistID,weight", "cell_id,gene_id,umis")
    ),
    Case("two identifiers that are not known", "x.csv",
         "shop_id,part_id,amount\n1,10,2\n1,11,1\n2,10,5\n", "1 2", "10 11", 8,
         ("read as a long table of 'shop_id', 'part_id' and 'amount'; name them 'sample'",)),
    Case("samples and features under a header of no meaning", "x.csv", "customer,product,zzz\n1,10,2\n1,11,1\n2,10,5\n",
         "1 2", "10 11", 8, ("read as a long table of 'customer', 'product' and 'zzz'",)),
    Case("cover of plants", "x.csv", "plot_id,taxon_id,cover,year\n1,10,2,1999\n1,11,1,1999\n2,10,5,1998\n",
         "1 2", "10 11", 8, ("long table of 'plot_id', 'taxon_id' and 'cover'; left out: 'year'",)),
    Case("MovieLens, ratings", "ratings.csv",
         "userId,movieId,rating,timestamp\n1,10,2,964982703\n1,11,1,964982704\n2,10,5,964982705\n",
         "1 2", "10 11", 8, ("left out: 'timestamp'",)),
    Case("MovieLens, u.data", "u.data", "196\t242\t3\t881250949\n186\t302\t3\t891717742\n22\t377\t1\t878887116\n",
         refused="but holds counts .*write a line of names above it, which of a long table are such as 'user', 'item'"),
    Case("MovieLens, ratings.dat", "ratings.dat", "1::1193::5::978300760\n1::661::3::978302109\n",
         refused="not entries with '::' between them; replace it by tabs"),
    Case("a list of events", "x.csv", "user_id,item_id,timestamp\n1,10,964982703\n1,11,964982704\n2,10,964982705\n",
         refused=r"list of 'user_id' and 'item_id' without a column of counts: .*frame.groupby\(\['user_id', "),
    Case("two columns of numbers", "x.csv", "user_id,item_id,likes,shares\n1,10,2,3\n1,11,1,4\n2,10,5,6\n",
         refused="counts may be in 'likes', 'shares': name their column 'count'; pass layout=.long"),
    Case("two columns of numbers, said to be long", "x.csv",
         "user_id,item_id,likes,shares\n1,10,2,3\n1,11,1,4\n2,10,5,6\n",
         "1 2", "10 11", 8, ("left out: 'shares'",), how={"layout": "long"}),
    Case("text, text, numbers", "x.csv", "visitant,page,hits,seconds\na,p,2,3\na,q,1,4\nb,p,5,6\n",
         refused=r"must be a long or a wide table: .*say layout=.long. or layout=.wide"),
    Case("text, text, numbers, said to be long", "x.csv", "visitant,page,hits,seconds\na,p,2,3\na,q,1,4\nb,p,5,6\n",
         "a b", "p q", 8, ("left out: 'seconds'",), how={"layout": "long"}),
    Case("LastFM, without headers", "plays.tsv",
         "00000c\tmb1\tbetty\t2137\n00000c\tmb2\tdie\t1099\n00001a\tmb1\tbetty\t9\n",
         refused="first line must name the columns, but holds a count"),
    Case("UCI, docword", "docword.kos.txt", "3\n4\n5\n1 2 1\n1 3 2\n",
         refused="of a docword file of UCI, replace the first three lines by one of names: document word count"),
    Case("Blei's LDA-C", "ap.dat",
         "3 0:1 6:2 9:1\n2 0:1 3:4\n", refused="pairs of a feature and a count, .*load_svmlight_file"),
    Case("svmlight", "x.txt", "1 1:3 7:2\n-1 2:4\n", refused="pairs of a feature and a count, .*load_svmlight_file"),
    # --- missing cells (F16)
    Case("NA, refused with the way", "x.csv", ",a,b\ns1,NA,2\ns2,3,4\n", refused="column 'a': .*NA.*say missing='nan'"),
    Case("empty cells, refused with the way", "x.csv",
         ",a,b\ns1,,2\ns2,3,4\n", refused="must be finite .*missing='nan'"),
    Case("NA", "x.csv", ",a,b\ns1,NA,2\ns2,3,4\n", "s1 s2", "a b", 9, how={"missing": "nan"}),
    Case("empty cells, turned", "x.csv",
         "gene,s1,s2\na,,3\nb,2,n/a\n", "s1 s2", "a b", 5, (TURNED,), how={"missing": "nan"}),
    Case("a long table of NA", "x.csv",
         "sample,gene,count\ns1,a,NA\ns1,b,2\ns2,a,3\n", "s1 s2", "a b", 5, how={"missing": "nan"}),
    # --- suffixes of SigProfiler (F51)
    *(Case("SigProfiler", f"x.SBS6.{end}", "MutationType\tt1\tt2\nC>A\t3\t1\nC>G\t1\t2\n"
         "", "t1 t2", "C>A C>G", 7, (TURNED,))
      for end in ("all", "exome", "region", "dat", "data")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.tool}-{case.name}")
def test_a_table_is_read_right_or_refused(tmp_path, case):
    path = tmp_path / case.name
    path.write_text(case.text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if case.refused:
            with pytest.raises(ValueError, match=case.refused):
                read_counts(path, **case.how)
            return
        counts = read_counts(path, **case.how)
    said = [str(each.message) for each in caught]
    for words in case.said:
        assert any(re.search(words, each) for each in said), (words, said)
    assert len(said) == len(case.said), said
    rows, features = csv.reader([case.rows, case.features], delimiter=" ", quotechar="'")
    assert [str(name) for name in counts.row_names] == rows
    assert [str(name) for name in counts.feature_names] == features
    assert counts.total == pytest.approx(case.total)


# --- names beside matrices (F19) ------------------------------------------------------------------

CELLS, GENES = ["AAACCTGAGA-1", "AAACCTGAGC-1", "AAACCTGAGT-1"], ["ENSG1", "ENSG2", "ENSG3", "ENSG4"]
X = np.array([[3, 0, 1, 0], [0, 2, 0, 0], [5, 0, 0, 6]])


def lines(names, *more):
    return "".join(f"{each}{''.join(more)}\n" for each in names)


BESIDE = {
    "STARsolo, velocity": ("spliced.mtx", X.T, {"barcodes.tsv": lines(CELLS), "features.tsv": lines(GENES)}),
    "STARsolo, EM": ("UniqueAndMult-EM.mtx", X.T, {"barcodes.tsv": lines(CELLS), "features.tsv": lines(GENES)}),
    "of a sample": ("GSM1_ambiguous.mtx", X.T, {"GSM1_barcodes.tsv": lines(CELLS), "GSM1_features.tsv": lines(GENES)}),
    "kallisto bustools": ("cells_x_genes.mtx", X,
                          {"cells_x_genes.barcodes.txt": lines(CELLS), "cells_x_genes.genes.txt": lines(GENES)}),
    "kallisto beside others": ("cells_x_genes.mtx", X, {"barcodes.tsv": lines(CELLS), "genes.tsv": lines(GENES)}),
    "alevin": ("quants_mat.mtx", X, {"quants_mat_rows.txt": lines(CELLS), "quants_mat_cols.txt": lines(GENES)}),
    "Expression Atlas": ("E.counts.mtx", X.T, {"E.counts.mtx_rows": "".join(f"{g}\t{g}\n" for g in GENES),
                                               "E.counts.mtx_cols": lines(["SAM1", "SAM2", "SAM3"])}),
    "Expression Atlas, cells": ("E.counts.mtx", X.T, {"E.counts.mtx_rows": lines(GENES),
                                                      "E.counts.mtx_cols": lines(CELLS)}),
    "Cell Ranger ATAC": ("matrix.mtx", X.T, {"peaks.bed": "".join(f"chr1\t{9 * i}\t{9 * i + 5}\n" for i in range(4)),
                                             "barcodes.tsv": lines(CELLS)}),
}  # fmt: skip


@pytest.mark.parametrize("tool", BESIDE)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_matrix_has_the_names_of_files_beside_it(tmp_path, tool, ending):
    name, matrix, files = BESIDE[tool]
    mmwrite(tmp_path / name, coo_array(matrix))
    for file, text in files.items():
        (tmp_path / (file + ending)).write_bytes(gzip.compress(text.encode()) if ending else text.encode())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counts = read_counts(tmp_path / name)
    np.testing.assert_array_equal(counts.dense, X)
    assert counts.row_names.tolist() == (["SAM1", "SAM2", "SAM3"] if tool == "Expression Atlas" else CELLS)
    peaks = ["chr1:0-5", "chr1:9-14", "chr1:18-23", "chr1:27-32"]
    assert counts.feature_names.tolist() == (peaks if "ATAC" in tool else GENES)
    assert [TURNED in str(each.message) for each in caught] == [True] * (matrix.shape != X.shape)


def test_rows_of_the_atlas_are_genes_whatever_they_are_called(tmp_path):
    mmwrite(tmp_path / "E.mtx", coo_array(X.T))
    (tmp_path / "E.mtx_rows").write_text(lines(GENES))
    (tmp_path / "E.mtx_cols").write_text(lines(["a", "b", "c"]))
    with pytest.warns(bayesnmf.DataWarning, match="as E.mtx_rows and E.mtx_cols show"):
        np.testing.assert_array_equal(read_counts(tmp_path / "E.mtx").dense, X)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_files_that_may_have_the_names_are_told(tmp_path, ending):
    """Such as those of split-pipe of Parse Biosciences; of other lengths, nothing is said."""
    mmwrite(tmp_path / "count_matrix.mtx", coo_array(X))
    texts = {"all_genes.csv": lines(["gene_id,genome", *(f"{each},hg38" for each in GENES)]), "cells.csv": lines(CELLS)}
    read_counts(tmp_path / "count_matrix.mtx")
    for name, text in texts.items():
        (tmp_path / (name + ending)).write_bytes(gzip.compress(text.encode()) if ending else text.encode())
    with pytest.warns(bayesnmf.DataWarning, match="have no names: cells.csv.* and all_genes.csv.* beside it have as"):
        assert read_counts(tmp_path / "count_matrix.mtx").row_names.tolist() == [0, 1, 2]
    (tmp_path / "notes.txt").write_text("one\n")
    mmwrite(tmp_path / "other.mtx", coo_array(np.ones((7, 9))))
    assert read_counts(tmp_path / "other.mtx").shape == (7, 9)


def test_a_folder_without_its_matrix_names_the_others(tmp_path):
    for name in ("spliced.mtx", "unspliced.mtx"):
        mmwrite(tmp_path / name, coo_array(X.T))
    (tmp_path / "barcodes.tsv").write_text(lines(CELLS))
    (tmp_path / "features.tsv").write_text(lines(GENES))
    with pytest.raises(
        ValueError, match=r"matrix.mtx is missing; .*the one file of spliced.mtx, unspliced.mtx to read"
    ):
        read_counts(tmp_path)


def test_a_square_matrix_of_kallisto_has_cells_in_rows(tmp_path):
    mmwrite(tmp_path / "cells_x_genes.mtx", coo_array(X[:, :3]))
    (tmp_path / "cells_x_genes.barcodes.txt").write_text(lines(CELLS))
    (tmp_path / "cells_x_genes.genes.txt").write_text(lines(GENES[:3]))
    np.testing.assert_array_equal(read_counts(tmp_path / "cells_x_genes.mtx").dense, X[:, :3])


def test_names_of_another_size_are_told(tmp_path):
    mmwrite(tmp_path / "spliced.mtx", coo_array(X.T))
    (tmp_path / "barcodes.tsv").write_text(lines(CELLS[:2]))
    (tmp_path / "features.tsv").write_text(lines(GENES))
    with pytest.warns(
        bayesnmf.DataWarning, match=r"spliced.mtx have no names: features.tsv and barcodes.tsv beside it"
    ):
        assert read_counts(tmp_path / "spliced.mtx").row_names.tolist() == [0, 1, 2, 3]
    (tmp_path / "spliced.mtx_rows").write_text(lines(GENES))
    (tmp_path / "spliced.mtx_cols").write_text(lines(CELLS[:2]))
    with pytest.raises(ValueError, match=r"a row for each of 4 names in spliced.mtx_rows .* found shape \(4, 3\)"):
        read_counts(tmp_path / "spliced.mtx")


def test_tags_of_cite_seq_count_have_their_counter_left_out(tmp_path):
    mmwrite(tmp_path / "matrix.mtx", coo_array(X.T))
    (tmp_path / "barcodes.tsv").write_text(lines(CELLS))
    (tmp_path / "features.tsv").write_text(lines(["CD3-ACG", "CD4-TGA", "CD8-CCC", "unmapped"]))
    with pytest.warns(bayesnmf.DataWarning, match="could not count for any feature, left out: 'unmapped'"):
        counts = read_counts(tmp_path)
    np.testing.assert_array_equal(counts.dense, X[:, :3])


# --- long tables without known headers (F18) ------------------------------------------------------

RANDOM = np.random.default_rng(0)
PAIRS = RANDOM.permutation(
    np.union1d(RANDOM.choice(60 * 80, 220, replace=False), np.arange(80) * 60 + np.arange(80) % 60)
)
ORDERS = pd.DataFrame({"a": PAIRS % 60 + 101, "b": PAIRS // 60 + 5001, "c": 1 + RANDOM.poisson(1.5, len(PAIRS))})


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("header", ["a b c", "order_no sku qty", "gene_ix cell_ix umis", "client article quantite"])
def test_ids_with_unknown_headers_are_refused_with_a_cure_that_works(tmp_path, header, numbered):
    """By what repeats: each id does, and no pair; R writes numbers of lines before them."""
    orders = ORDERS.set_axis(header.split(), axis="columns").set_axis(np.arange(1, len(ORDERS) + 1))
    orders.to_csv(tmp_path / "x.csv", index=numbered)
    with pytest.raises(ValueError, match=r"have the same '\w+' and '\w+', as in a long table, .*say layout=\"long\""):
        read_counts(tmp_path / "x.csv")
    found = read_counts(tmp_path / "x.csv", layout="long")
    wide = ORDERS.pivot_table("c", "a", "b", "sum", 0)
    wide = wide.set_axis(wide.index.astype(str)).set_axis(wide.columns.astype(str), axis="columns")
    np.testing.assert_array_equal(wide.loc[found.row_names, found.feature_names], found.dense)
    assert read_counts(tmp_path / "x.csv", layout="wide").shape == (len(ORDERS), 3)


@pytest.mark.parametrize("lines", [30, 100, 1000])
def test_three_features_are_no_long_table(lines):
    """Of any mean and spread, in 30 tables."""
    random = np.random.default_rng(lines)
    for _ in range(30):
        means, shape = np.exp(random.uniform(0, 6, 3)), np.exp(random.uniform(-1, 4))
        frame = pd.DataFrame(
            random.poisson(random.gamma(shape, 1 / shape, (lines, 3)) * means), columns=["a", "b", "c"]
        )
        assert as_counts(frame).shape == (lines, 3)


# --- frames and AnnData ---------------------------------------------------------------------------

COUNTED = pd.DataFrame(X, CELLS, GENES)
TOLD = {
    "counters": (COUNTED.rename(columns={"ENSG4": "__no_feature"}), "features that are counters .*: '__no_feature'"),
    "counters in rows": (COUNTED.rename(index={CELLS[0]: "N_unmapped"}), "rows that are counters .*: 'N_unmapped'"),
    "identifiers": (COUNTED.rename(columns={"ENSG1": "cell_ID"}), "and no counts: 'cell_ID'; .*counts.drop"),
    "metrics": (COUNTED.rename(columns={"ENSG4": "nCount_RNA"}), "about the rows, and no counts: 'nCount_RNA'"),
    "long": (pd.DataFrame({"customer_id": [1, 1, 2], "product_id": [10, 11, 10], "quantity": [2, 1, 5]}),
             r"frame.pivot_table\('quantity', 'customer_id', 'product_id', 'sum', 0\)"),
}  # fmt: skip


TOLD["long, by what repeats"] = (ORDERS, r"look like a long table, .*frame.pivot_table\('c', 'a', 'b', 'sum', 0\)")


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning")
@pytest.mark.parametrize("case", TOLD)
def test_frames_and_annotated_data_are_told(case):
    frame, words = TOLD[case]
    with pytest.warns(bayesnmf.DataWarning, match=words):
        np.testing.assert_array_equal(as_counts(frame).dense, frame.to_numpy())
    if "long" not in case:
        with pytest.warns(bayesnmf.DataWarning, match=words):
            as_counts(anndata.AnnData(frame.astype(float)))


WIDE_COUNTS = pd.DataFrame(
    np.random.default_rng(0).poisson(5, (30, 26)), [f"s{i}" for i in range(30)], [f"GENE{i}" for i in range(26)]
)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    ("heads", "left", "kept"),
    [
        (["days_to_death", "vital_status"], ["vital_status"], ["days_to_death"]),  # TCGA
        (["OS_months", "OS_status", "age"], ["OS_status", "age"], ["OS_months"]),  # cBioPortal
        (["n_chars", "word_count"], [], ["n_chars", "word_count"]),
        (["dose", "timepoint"], ["dose", "timepoint"], []),
        (["level_0"], ["level_0"], []),
    ],
)
def test_unknown_columns_about_samples_are_told(tmp_path, at_end, heads, left, kept):
    """They were counts of features, in silence: days were most of a table of genes."""
    rng = np.random.default_rng(1)
    more = pd.DataFrame({head: rng.integers(1, 900, 30) for head in heads}, WIDE_COUNTS.index)
    frame = pd.concat([WIDE_COUNTS, more] if at_end else [more, WIDE_COUNTS], axis=1)
    frame.to_csv(tmp_path / "table.csv", index_label="sample")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read_counts(tmp_path / "table.csv")
    assert {*found.feature_names} == {*WIDE_COUNTS, *kept}
    said = " ".join(str(each.message) for each in caught)
    assert all(repr(head) in said for head in (*left, *kept))
    with pytest.warns(bayesnmf.DataWarning, match=repr((kept or left)[0])):
        as_counts(frame)


def test_an_index_that_was_written_twice_is_no_feature(tmp_path):
    frame = pd.DataFrame(np.ones((30, 2), int), columns=["CD19", "LYZ"])
    frame.to_csv(tmp_path / "once.csv")
    again = pd.read_csv(tmp_path / "once.csv")
    again.to_csv(tmp_path / "twice.csv")
    assert list(read_counts(tmp_path / "twice.csv").feature_names) == ["CD19", "LYZ"]
    with pytest.warns(bayesnmf.DataWarning, match="no counts: 'Unnamed: 0'"):
        as_counts(again)


@pytest.mark.parametrize(
    ("heads", "index"),
    [
        ([f"tissue{i}" for i in range(1, 7)], "gene_id"),
        (["total_RNA_1", "total_RNA_2", "poly_1", "poly_2"], "gene_id"),
        ([f"pixel{i}" for i in range(9)], "image"), (["apple", "mean_value", "of", "sum_of", "tree"], "document"),
    ],
)  # fmt: skip
def test_numbered_samples_and_words_are_no_metrics(tmp_path, heads, index):
    """Samples tissue1 and tissue2 of six were dropped as coordinates."""
    lines = [f"ENSG{i:011d}" if index == "gene_id" else f"d{i}" for i in range(30)]
    frame = pd.DataFrame(np.random.default_rng(0).poisson(5, (30, len(heads))), lines, heads)
    frame.to_csv(tmp_path / "table.csv", index_label=index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.DataWarning)  # genes in rows are turned
        found = read_counts(tmp_path / "table.csv")
    names = found.row_names if index == "gene_id" else found.feature_names
    assert list(names) == heads


@pytest.mark.parametrize("second", ["1,000", "1"])
def test_commas_between_thousands_are_refused_with_a_cure_that_works(tmp_path, second):
    """They made a wide table a long one, whose features were the numbers."""
    path = tmp_path / "table.csv"
    path.write_text(f'sample,g1,g2\na,"1,000",3\nb,"2,345",4\nc,"{second}",3\n')
    with pytest.raises(ValueError, match="no commas between thousands: found '1,000' in column 'g1'"):
        read_counts(path)
    pd.read_csv(path, index_col=0, thousands=",").to_csv(tmp_path / "without.csv")
    assert read_counts(tmp_path / "without.csv").total == 1000 + 2345 + int(second.replace(",", "")) + 10


def test_a_long_table_with_an_index_is_long_whatever_its_headers(tmp_path):
    """It was read as wide, with one feature."""
    rng = np.random.default_rng(0)
    lines = [(f"u{i}", f"b{j}", int(rng.poisson(3)) + 1) for i in range(10) for j in rng.choice(5, 4, False)]
    frame = pd.DataFrame(lines, columns=["foo", "bar", "baz"])
    frame.to_csv(tmp_path / "with.csv")
    frame.to_csv(tmp_path / "without.csv", index=False)
    with_index, without = (read_counts(tmp_path / name) for name in ("with.csv", "without.csv"))
    assert with_index.shape == (10, 5)
    np.testing.assert_array_equal(with_index.dense, without.dense)


def test_a_frame_of_a_single_sample_is_told():
    table = pd.DataFrame(
        {"Length": [900, 400], "EffectiveLength": [700.5, 200.5], "TPM": [12.5, 2.5], "NumReads": [3, 7]}
    )
    with pytest.warns(bayesnmf.DataWarning, match=r"table of salmon, of one sample, .*table\['NumReads'\]"):
        as_counts(table.set_axis(["ENST1", "ENST2"]))


def test_a_long_frame_with_text_is_refused_with_a_cure_that_gives_counts():
    """It was said to drop the text, which left a single column of counts."""
    frame = pd.DataFrame({"sample": ["s1", "s1", "s2"], "gene": ["a", "b", "a"], "n": [1, 2, 3]})
    with pytest.raises(TypeError, match=r"make it wide: frame.pivot_table\('n', 'sample', 'gene', 'sum', 0\)"):
        as_counts(frame)
    np.testing.assert_array_equal(as_counts(frame.pivot_table("n", "sample", "gene", "sum", 0)).dense, [[1, 2], [3, 0]])


def test_the_cure_of_a_long_frame_gives_counts():
    frame = TOLD["long"][0]
    wide = frame.pivot_table("quantity", "customer_id", "product_id", "sum", 0)
    np.testing.assert_array_equal(as_counts(wide).dense, [[2, 1], [5, 0]])


def test_a_gene_that_has_the_name_of_a_coordinate_is_a_feature(tmp_path):
    """LAT is a gene of T cells; columns of degrees are told, or left out of a file."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.poisson(2, (30, 7)), columns=["CD3D", "LYZ", "LAT", "NKG7", "GNLY", "CCL5", "PF4"])
    assert bayesnmf.as_counts(frame).shape == (30, 7)
    frame.to_csv(tmp_path / "cells.csv")
    assert list(bayesnmf.read_counts(tmp_path / "cells.csv").feature_names) == list(frame)
    with pytest.warns(bayesnmf.DataWarning, match="'lat', 'lon'"):
        bayesnmf.as_counts(frame.assign(lat=rng.normal(50, 1, 30).round(), lon=rng.normal(9, 1, 30).round()))
