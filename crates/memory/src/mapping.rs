/// placeholder
pub struct MapPolicy;
/// placeholder
pub struct MappedFile;
